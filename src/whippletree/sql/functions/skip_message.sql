-- Moves the head of an unleased stream to the dead letters, with the reason, and lets the rest of the stream go on.
-- False when the message is not the head, or is being handled.
CREATE OR REPLACE FUNCTION skip_message(
  p_queue text, p_stream_id uuid, p_version bigint, p_reason text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_row tid;
BEGIN
  WITH head AS MATERIALIZED (
    SELECT s.attempts, s.error FROM wh_active_streams s
    WHERE s.queue = p_queue AND s.stream_id = p_stream_id AND s.head_version = p_version - 1
      AND NOT is_leased(s.lease_expiry, p_as_of)
    FOR NO KEY UPDATE
  ), skipped AS (
    DELETE FROM wh_messages m USING head h
    WHERE m.queue = p_queue AND m.stream_id = p_stream_id AND m.version = p_version
    RETURNING m.*, h.attempts, h.error
  )
  INSERT INTO wh_dead_letters (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, scheduled_for, created_at, attempts, error, reason, died_at)
  SELECT k.queue, k.stream_id, k.version, k.message_id, k.message_type, k.topic, k.payload, k.headers,
    k.correlation_id, k.causation_id, k.scheduled_for, k.created_at, k.attempts, k.error, p_reason, p_as_of
  FROM skipped k;
  IF NOT FOUND THEN
    RETURN false;
  END IF;

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
