-- Stores one message: store_messages without arrays, for the many callers who store one at a time.
CREATE OR REPLACE FUNCTION store_message(
  p_queue text, p_stream_id uuid, p_stream_key text, p_message_id uuid, p_message_type text, p_topic text, p_payload json,
  p_headers json, p_correlation_id uuid, p_causation_id uuid, p_scheduled_for timestamptz, p_as_of timestamptz)
RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
DECLARE
  v_version bigint := 1;
  v_as_of timestamptz;
  v_outbox integer := (p_queue = 'outbox')::integer;
BEGIN
  IF p_stream_id IS NULL THEN
    PERFORM require_ids_of_their_own(ARRAY[p_stream_id], ARRAY[p_message_id]);
  ELSE
    INSERT INTO wh_streams AS w (stream_id, stream_key, outbox_version, inbox_version)
    VALUES (p_stream_id, p_stream_key, v_outbox, 1 - v_outbox)
    ON CONFLICT (stream_id) DO UPDATE
    SET stream_key = COALESCE(w.stream_key, EXCLUDED.stream_key),
        outbox_version = w.outbox_version + v_outbox, inbox_version = w.inbox_version + 1 - v_outbox
    RETURNING CASE v_outbox WHEN 1 THEN w.outbox_version ELSE w.inbox_version END INTO v_version;
  END IF;
  v_as_of := COALESCE(p_as_of, clock_timestamp());
  INSERT INTO wh_messages (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, scheduled_for, created_at)
  VALUES (p_queue, COALESCE(p_stream_id, p_message_id), v_version, p_message_id, p_message_type, p_topic, p_payload,
    p_headers, p_correlation_id, p_causation_id, p_scheduled_for, v_as_of);
  PERFORM activate_stream(p_queue, COALESCE(p_stream_id, p_message_id), v_version - 1,
    greatest(v_as_of, p_scheduled_for), v_as_of);
  PERFORM wake_waiting_instances();
  RETURN v_version;
END;
$$;
