-- Writes who handled which events when. The streams are locked and leased to the caller.
CREATE OR REPLACE FUNCTION log_receptors(
  p_queues text[], p_stream_ids uuid[], p_head_versions bigint[], p_through bigint[], p_instance_id uuid,
  p_as_of timestamptz)
RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  UPDATE wh_receptor_log l
  SET processed_at = p_as_of, instance_id = p_instance_id,
    attempts = CASE WHEN s.head_version = h.head_version AND l.version = (
      SELECT min(f.version) FROM wh_receptor_log f
      WHERE f.receptor_name = l.receptor_name AND f.stream_id = l.stream_id AND f.version > h.head_version)
      THEN s.attempts ELSE 1 END
  FROM unnest(p_queues, p_stream_ids, p_head_versions, p_through) AS h(queue, stream_id, head_version, through)
  JOIN wh_active_streams s ON s.stream_id = ANY (ARRAY[h.stream_id]) AND s.queue = h.queue
  WHERE h.queue LIKE 'receptor/%' AND l.receptor_name = substr(h.queue, 10) AND l.stream_id = h.stream_id
    AND l.version > h.head_version AND l.version <= h.through;
$$;
