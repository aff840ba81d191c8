-- Events of one part of a rebuild after a number, in the order of the feed, each with its key. None when the parts have ended
-- meanwhile: then there is no row that could be moved past them.
CREATE OR REPLACE FUNCTION read_sorted(
  p_perspective_name text, p_generation integer, p_part integer, p_after bigint, p_limit bigint)
RETURNS TABLE (
  number bigint, stream_id uuid, version bigint, event_id uuid, event_type text, shape integer, payload json,
  metadata json, correlation_id uuid, causation_id uuid, created_at timestamptz, key text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  v_table text := keys_table(p_perspective_name, p_generation);
BEGIN
  IF to_regclass(quote_ident(v_table)) IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY EXECUTE format('SELECT k.number, e.stream_id, e.version, e.event_id, e.event_type, e.shape, e.payload,
      e.metadata, e.correlation_id, e.causation_id, e.created_at, k.key
    FROM (SELECT * FROM %I t WHERE t.part = $1 AND t.number > $2 ORDER BY t.number LIMIT $3) k
    JOIN wh_event_sequence n ON n.number = k.number
    JOIN wh_event_store e ON e.stream_id = n.stream_id AND e.version = n.version
    ORDER BY k.number', v_table) USING p_part, p_after, p_limit;
END;
$$;
