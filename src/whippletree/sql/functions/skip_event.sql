-- Lets a perspective or a receptor pass over the event at its head, unleased, and records what and why.
-- False when the event is not the head, or is being handled.
CREATE OR REPLACE FUNCTION skip_event(
  p_queue text, p_stream_id uuid, p_version bigint, p_reason text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_row tid;
BEGIN
  INSERT INTO wh_dead_letters (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, created_at, attempts, error, reason, died_at)
  SELECT s.queue, e.stream_id, e.version, e.event_id, e.event_type, '', e.payload, e.metadata, e.correlation_id,
    e.causation_id, e.created_at, s.attempts, s.error, p_reason, p_as_of
  FROM (
    SELECT a.* FROM wh_active_streams a
    WHERE a.queue = p_queue AND a.stream_id = p_stream_id AND NOT is_leased(a.lease_expiry, p_as_of)
    FOR NO KEY UPDATE
  ) s
  JOIN wh_event_store e ON e.stream_id = s.stream_id AND e.version = p_version
  WHERE work_through(p_queue, p_stream_id, s.head_version, 1) = p_version;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE wh_receptor_log l SET skipped = p_reason, processed_at = p_as_of
  WHERE l.receptor_name = substr(p_queue, 10) AND l.stream_id = p_stream_id AND l.version = p_version
    AND p_queue LIKE 'receptor/%';
  PERFORM save_checkpoints(ARRAY[p_queue], ARRAY[p_stream_id], ARRAY[p_version], p_as_of);
  UPDATE wh_active_streams s
  SET head_version = p_version, attempts = 0, error = NULL, ready_at = p_as_of, moved_at = p_as_of,
    instance_id = NULL, lease_expiry = NULL, lease_token = NULL, leased_through = NULL
  WHERE s.queue = p_queue AND s.stream_id = p_stream_id
  RETURNING s.ctid INTO v_row;
  PERFORM remove_drained_streams(ARRAY[v_row], ARRAY[p_version]);
  PERFORM wake_waiting_instances();
  RETURN true;
END;
$$;
