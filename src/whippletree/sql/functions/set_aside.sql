-- Copies a message that is given up to the dead letters, in the transaction that completes it: its stream goes on.
CREATE OR REPLACE FUNCTION set_aside(
  p_queue text, p_stream_id uuid, p_version bigint, p_attempts integer, p_error text, p_as_of timestamptz DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_as_of timestamptz := COALESCE(p_as_of, clock_timestamp());
BEGIN
  INSERT INTO wh_dead_letters (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, scheduled_for, created_at, attempts, error, reason, died_at)
  SELECT p_queue, p_stream_id, p_version, m.message_id, m.message_type, m.topic, m.payload, m.headers,
    m.correlation_id, m.causation_id, m.scheduled_for, m.created_at, p_attempts, p_error, 'out of attempts', v_as_of
  FROM wh_messages m
  WHERE m.queue = p_queue AND m.stream_id = p_stream_id AND m.version = p_version
  UNION ALL
  SELECT p_queue, p_stream_id, p_version, e.event_id, e.event_type, '', e.payload, e.metadata,
    e.correlation_id, e.causation_id, NULL, e.created_at, p_attempts, p_error, 'out of attempts', v_as_of
  FROM wh_event_store e
  WHERE p_queue LIKE 'receptor/%' AND e.stream_id = p_stream_id AND e.version = p_version;

  UPDATE wh_receptor_log l SET skipped = p_error
  WHERE p_queue LIKE 'receptor/%' AND l.receptor_name = substr(p_queue, 10) AND l.stream_id = p_stream_id
    AND l.version = p_version;
END;
$$;
