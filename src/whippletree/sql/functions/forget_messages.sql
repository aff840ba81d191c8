-- Forgets message ids that the inbox accepted longer ago than the retention, the oldest first, at most p_limit of them;
-- returns how many. Without a retention nothing is forgotten. The id of a message that still waits is kept, however old.
-- Call it in a transaction of its own, again while it returns p_limit: whoever stores one of these very ids waits for it
-- to end. Nobody else does; a second caller at the same time has nothing to do.
CREATE OR REPLACE FUNCTION forget_messages(p_limit integer DEFAULT 5000, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_before timestamptz := p_as_of - (SELECT deduplication_retention FROM wh_settings);
  v_forgotten integer;
BEGIN
  IF v_before IS NULL OR NOT pg_try_advisory_xact_lock(lock_key('forget messages')) THEN
    RETURN 0;
  END IF;
  WITH old AS MATERIALIZED (
    SELECT d.message_id FROM wh_message_deduplication d
    WHERE d.first_seen_at < v_before
      AND NOT EXISTS (SELECT FROM wh_messages m WHERE m.message_id = d.message_id AND m.queue = 'inbox' AND m.version > 0)
    ORDER BY d.first_seen_at
    LIMIT p_limit
  )
  DELETE FROM wh_message_deduplication d USING old o WHERE d.message_id = o.message_id;
  GET DIAGNOSTICS v_forgotten = ROW_COUNT;
  RETURN v_forgotten;
END;
$$;
