-- Stores one message into the outbox: what store_messages does, without arrays and in one function, for the many callers
-- who store one at a time. The reasons stand in number_messages and activate_streams.
CREATE OR REPLACE FUNCTION store_message(
  p_stream_id uuid, p_stream_key text, p_message_id uuid, p_message_type text, p_topic text, p_payload json,
  p_headers json, p_correlation_id uuid, p_causation_id uuid, p_scheduled_for timestamptz,
  p_as_of timestamptz DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_max_payload_bytes integer := 1024;
  v_stream_id uuid := COALESCE(p_stream_id, p_message_id);
  v_version bigint := 1;
  v_as_of timestamptz;
  v_fault text;
BEGIN
  -- Whatever the setting is, it allows as much: most messages need not look it up.
  IF octet_length(p_payload::text) > v_max_payload_bytes THEN
    SELECT max_payload_bytes INTO v_max_payload_bytes FROM wh_settings;
  END IF;
  v_fault := message_fault(p_stream_id, p_message_id, p_message_type, p_payload, v_max_payload_bytes);
  IF v_fault IS NOT NULL THEN
    RAISE EXCEPTION 'message 1 cannot be stored: %', v_fault USING ERRCODE = 'WH004';
  END IF;
  IF p_stream_id IS NULL THEN
    PERFORM require_ids_of_their_own(ARRAY[p_stream_id], ARRAY[p_message_id]);
  ELSE
    -- Most streams are there, and an update alone locks and logs less than an insertion that finds them.
    UPDATE wh_streams w
    SET stream_key = COALESCE(w.stream_key, p_stream_key), outbox_version = w.outbox_version + 1
    WHERE w.stream_id = p_stream_id RETURNING w.outbox_version INTO v_version;
    IF NOT FOUND THEN
      INSERT INTO wh_streams AS w (stream_id, stream_key, outbox_version)
      VALUES (p_stream_id, p_stream_key, 1)
      ON CONFLICT (stream_id) DO UPDATE
      SET stream_key = COALESCE(w.stream_key, EXCLUDED.stream_key), outbox_version = w.outbox_version + 1
      RETURNING w.outbox_version INTO v_version;
    END IF;
  END IF;
  v_as_of := COALESCE(p_as_of, clock_timestamp());
  INSERT INTO wh_messages (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, scheduled_for, created_at)
  VALUES ('outbox', v_stream_id, v_version, p_message_id, p_message_type, p_topic, p_payload, p_headers,
    p_correlation_id, p_causation_id, p_scheduled_for, v_as_of);

  LOOP
    PERFORM FROM wh_active_streams s WHERE s.queue = 'outbox' AND s.stream_id = v_stream_id FOR KEY SHARE;
    EXIT WHEN FOUND;
    PERFORM require_recent_snapshot() WHERE current_setting('transaction_isolation') <> 'read committed';
    INSERT INTO wh_active_streams (queue, stream_id, partition_number, ready_at, head_version, moved_at)
    VALUES ('outbox', v_stream_id, partition_of(v_stream_id, (SELECT partition_count FROM wh_settings)),
      greatest(v_as_of, p_scheduled_for), v_version - 1, v_as_of)
    ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  IF EXISTS (SELECT FROM wh_service_instances WHERE waiting) THEN
    PERFORM pg_notify(wake_channel(), '');
  END IF;
  RETURN v_version;
END;
$$;
