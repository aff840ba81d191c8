-- Remembers the message ids that are new, in key order, and says of each message whether it is stored, duplicate or
-- conflict. An id that another transaction is just accepting is waited for: its rollback makes ours the first.
CREATE OR REPLACE FUNCTION deduplicate(
  p_message_ids uuid[], p_message_types text[], p_payloads json[], p_as_of timestamptz)
RETURNS text[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  v_hashes uuid[] := ARRAY(
    SELECT body_hash(m.message_type, m.payload::text) FROM unnest(p_message_types, p_payloads) AS m(message_type, payload));
  v_new uuid[] := '{}';
  v_outcomes text[];
BEGIN
  LOOP
    WITH accepted AS (
      INSERT INTO wh_message_deduplication (message_id, first_seen_at, body_hash)
      SELECT DISTINCT ON (m.message_id) m.message_id, p_as_of, m.body_hash
      FROM unnest(p_message_ids, v_hashes) WITH ORDINALITY AS m(message_id, body_hash, place)
      ORDER BY m.message_id, m.place
      ON CONFLICT (message_id) DO NOTHING
      RETURNING message_id
    )
    SELECT v_new || array_agg(message_id) INTO v_new FROM accepted;
    IF cardinality(v_new) = cardinality(p_message_ids) THEN
      RETURN array_fill('stored'::text, ARRAY[cardinality(v_new)]);
    END IF;

    v_outcomes := ARRAY(
      SELECT CASE
        WHEN d.body_hash <> m.body_hash THEN 'conflict'
        -- The first of several copies in one call is the one that is stored.
        WHEN m.message_id = ANY (v_new) AND m.place = min(m.place) OVER (PARTITION BY m.message_id) THEN 'stored'
        ELSE 'duplicate'
      END
      FROM unnest(p_message_ids, v_hashes) WITH ORDINALITY AS m(message_id, body_hash, place)
      JOIN wh_message_deduplication d ON d.message_id = m.message_id
      ORDER BY m.place);
    -- An id that forget_messages took away between the two statements is new after all.
    EXIT WHEN cardinality(v_outcomes) = cardinality(p_message_ids);
  END LOOP;
  RETURN v_outcomes;
END;
$$;
