-- The version up to which a stream's next work may be handed out, p_run_limit pieces of it at most; NULL when there is
-- none. A receptor gets the events that it wants; a perspective moves over all events of the stream.
CREATE OR REPLACE FUNCTION work_through(p_queue text, p_stream_id uuid, p_head_version bigint, p_run_limit integer)
RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN CASE
    WHEN p_queue LIKE 'perspective/%' THEN (SELECT max(n.version) FROM (
      SELECT e.version FROM wh_event_store e
      WHERE e.stream_id = p_stream_id AND e.version > p_head_version
      ORDER BY e.version LIMIT p_run_limit) n)
    WHEN p_queue LIKE 'receptor/%' THEN (SELECT max(n.version) FROM (
      SELECT l.version FROM wh_receptor_log l
      WHERE l.receptor_name = substr(p_queue, 10) AND l.stream_id = p_stream_id AND l.version > p_head_version
      ORDER BY l.version LIMIT p_run_limit) n)
    ELSE (SELECT max(n.version) FROM (
      SELECT m.version FROM wh_messages m
      WHERE m.queue = p_queue AND m.stream_id = p_stream_id AND m.version > p_head_version
      ORDER BY m.version LIMIT p_run_limit) n)
  END;
END;
$$;
