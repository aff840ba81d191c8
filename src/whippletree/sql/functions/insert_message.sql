-- INSERT and COPY into wh_outbox and wh_inbox: the row is stored like any message, in order, in the caller's transaction.
-- A duplicate in the inbox is left out silently, as ON CONFLICT DO NOTHING would; a conflict is an error.
CREATE OR REPLACE FUNCTION insert_message()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_queue text := TG_ARGV[0];
  v_outcome text;
  v_fault text;
BEGIN
  v_fault := CASE
    WHEN NEW.partition_number IS NOT NULL THEN 'partition_number follows from the stream; leave it out'
    -- The short way of one message leaves this to its callers.
    WHEN is_too_deep(NEW.payload) THEN 'payload is nested more than 64 deep'
    WHEN stream_id_of(NEW.stream_key) <> NEW.stream_id THEN 'stream_id and stream_key name two streams; give one of them'
    ELSE envelope_fault(NEW.stream_key, NEW.topic, NEW.headers, NEW.scheduled_for,
      (SELECT max_payload_bytes FROM wh_settings))
  END;
  IF v_fault IS NOT NULL THEN
    RAISE EXCEPTION '%', v_fault USING ERRCODE = 'WH004';
  END IF;
  NEW.message_id := COALESCE(NEW.message_id, gen_random_uuid());
  NEW.stream_id := COALESCE(NEW.stream_id, stream_id_of(NEW.stream_key));
  NEW.topic := COALESCE(NEW.topic, '');
  IF v_queue = 'outbox' THEN
    NEW.version := (store_outbox(ARRAY[NEW.stream_id], ARRAY[NEW.stream_key], ARRAY[NEW.message_id],
      ARRAY[NEW.message_type], ARRAY[NEW.topic], ARRAY[NEW.payload], ARRAY[NEW.headers], ARRAY[NEW.correlation_id],
      ARRAY[NEW.causation_id], ARRAY[NEW.scheduled_for]))[1];
    RETURN NEW;
  END IF;
  v_outcome := (store_inbox(ARRAY[NEW.stream_id], ARRAY[NEW.stream_key], ARRAY[NEW.message_id],
    ARRAY[NEW.message_type], ARRAY[NEW.topic], ARRAY[NEW.payload], ARRAY[NEW.headers], ARRAY[NEW.correlation_id],
    ARRAY[NEW.causation_id], ARRAY[NEW.scheduled_for]))[1];
  IF v_outcome = 'conflict' THEN
    RAISE EXCEPTION 'message % was received before with another body', NEW.message_id USING ERRCODE = 'WH004';
  END IF;
  RETURN CASE v_outcome WHEN 'stored' THEN NEW END;
END;
$$;
