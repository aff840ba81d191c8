-- Stores one message: what store_messages does, without arrays and in one function, for the many callers who store one
-- at a time. Returns its version; NULL when the inbox has accepted its id before, and nothing is stored: store_inbox then
-- says what it is. The reasons stand in number_messages, activate_streams and deduplicate.
CREATE OR REPLACE FUNCTION store_message(
  p_queue text, p_stream_id uuid, p_stream_key text, p_message_id uuid, p_message_type text, p_topic text,
  p_payload text, p_headers text, p_correlation_id uuid, p_causation_id uuid, p_scheduled_for timestamptz,
  p_as_of timestamptz DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_stream_id uuid := COALESCE(p_stream_id, p_message_id);
  v_version bigint := 1;
  v_as_of timestamptz;
BEGIN
  -- Most messages are plainly good, and one short expression sees it: PostgreSQL makes each ready anew in every transaction.
  IF (p_message_id > '00000000-0000-0000-0000-000000000000'
    AND COALESCE(p_stream_id > '00000000-0000-0000-0000-000000000000' AND p_stream_id <> p_message_id, true)
    AND p_message_type ~ '^[A-Za-z0-9_.+/:-]+$' AND length(p_message_type) <= 200
    AND octet_length(p_payload) <= 1024 AND strpos(p_payload, '\u') = 0) IS NOT TRUE
  THEN
    PERFORM require_storable(ARRAY[p_stream_id], ARRAY[p_message_id], ARRAY[p_message_type], ARRAY[p_payload::json]);
  END IF;
  IF p_stream_id IS NOT NULL AND p_queue = 'outbox' THEN
    INSERT INTO wh_streams AS w (stream_id, stream_key, outbox_version) VALUES (p_stream_id, p_stream_key, 1)
    ON CONFLICT (stream_id) DO UPDATE SET stream_key = COALESCE(w.stream_key, EXCLUDED.stream_key),
      outbox_version = w.outbox_version + 1 RETURNING w.outbox_version INTO v_version;
  ELSIF p_queue IS DISTINCT FROM 'outbox' THEN
    v_version := accept_message(p_queue, p_stream_id, p_stream_key, p_message_id, p_message_type, p_payload, p_as_of);
    IF v_version IS NULL THEN
      RETURN NULL;
    END IF;
  ELSIF EXISTS (SELECT FROM wh_streams w WHERE w.stream_id = p_message_id) THEN
    PERFORM require_ids_of_their_own(ARRAY[p_stream_id], ARRAY[p_message_id]);
  END IF;
  v_as_of := COALESCE(p_as_of, clock_timestamp());
  INSERT INTO wh_messages (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, scheduled_for, created_at)
  VALUES (p_queue, v_stream_id, v_version, p_message_id, p_message_type, p_topic, p_payload::json, p_headers::json,
    p_correlation_id, p_causation_id, p_scheduled_for, v_as_of);

  -- A new stream has no workers' row to ask for.
  IF v_version > 1 THEN
    PERFORM FROM wh_active_streams s WHERE s.queue = p_queue AND s.stream_id = v_stream_id FOR KEY SHARE;
    IF FOUND THEN
      RETURN v_version;
    END IF;
  END IF;
  -- Nobody else can make this row now: the writers' row, or a message without a stream, is ours. To look for a conflict
  -- would cost as much as the checks.
  INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)
  VALUES (p_queue, v_stream_id, stream_hash(v_stream_id), greatest(v_as_of, p_scheduled_for), v_version - 1, v_as_of);
  -- Asked here too, because the call would cost more than the answer.
  PERFORM FROM wh_service_instances WHERE waiting;
  IF FOUND THEN
    PERFORM wake_waiting_instances(p_queue);
  END IF;
  RETURN v_version;
END;
$$;
