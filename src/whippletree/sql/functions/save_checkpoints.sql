-- Writes how far perspectives have come. The streams are locked and leased to the caller.
CREATE OR REPLACE FUNCTION save_checkpoints(
  p_queues text[], p_stream_ids uuid[], p_through bigint[], p_as_of timestamptz)
RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  WITH kept AS MATERIALIZED (
    SELECT q.queue, checkpoints_of(q.queue) AS name FROM (SELECT DISTINCT unnest(p_queues) AS queue) q
  )
  INSERT INTO wh_checkpoints AS c (perspective_name, stream_id, version, last_event_id, created_at, updated_at)
  SELECT k.name, h.stream_id, h.through, e.event_id, p_as_of, p_as_of
  FROM unnest(p_queues, p_stream_ids, p_through) AS h(queue, stream_id, through)
  JOIN kept k ON k.queue = h.queue
  JOIN wh_event_store e ON e.stream_id = h.stream_id AND e.version = h.through
  WHERE k.name IS NOT NULL
  ON CONFLICT (perspective_name, stream_id) DO UPDATE
  SET version = EXCLUDED.version, last_event_id = EXCLUDED.last_event_id, updated_at = EXCLUDED.updated_at
  WHERE c.version < EXCLUDED.version;
$$;
