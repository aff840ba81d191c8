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
  v_version bigint := 1;
BEGIN
  -- Most messages are plainly good, and one short expression sees it: PostgreSQL makes each ready anew in every transaction.
  IF (p_message_id > '00000000-0000-0000-0000-000000000000'
    AND COALESCE(p_stream_id > '00000000-0000-0000-0000-000000000000' AND p_stream_id <> p_message_id, true)
    AND p_message_type ~ '^[A-Za-z0-9_.+/:-]+$' AND length(p_message_type) <= 200
    AND octet_length(p_payload::text) <= 1024 AND strpos(p_payload::text, '\u') = 0) IS NOT TRUE
  THEN
    PERFORM require_storable(ARRAY[p_stream_id], ARRAY[p_message_id], ARRAY[p_message_type], ARRAY[p_payload]);
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
  INSERT INTO wh_messages (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, scheduled_for, created_at)
  VALUES ('outbox', COALESCE(p_stream_id, p_message_id), v_version, p_message_id, p_message_type, p_topic,
    p_payload, p_headers, p_correlation_id, p_causation_id, p_scheduled_for, COALESCE(p_as_of, clock_timestamp()));

  LOOP
    PERFORM FROM wh_active_streams s
    WHERE s.queue = 'outbox' AND s.stream_id = COALESCE(p_stream_id, p_message_id) FOR KEY SHARE;
    IF FOUND THEN
      RETURN v_version;
    END IF;
    PERFORM require_recent_snapshot() WHERE current_setting('transaction_isolation') <> 'read committed';
    INSERT INTO wh_active_streams (queue, stream_id, partition_number, ready_at, head_version, moved_at)
    SELECT 'outbox', m.stream_id, partition_of(m.stream_id, (SELECT partition_count FROM wh_settings)),
      greatest(m.as_of, p_scheduled_for), v_version - 1, m.as_of
    FROM (SELECT COALESCE(p_stream_id, p_message_id) AS stream_id, COALESCE(p_as_of, clock_timestamp()) AS as_of OFFSET 0) m
    ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  PERFORM wake_waiting_instances();
  RETURN v_version;
END;
$$;
