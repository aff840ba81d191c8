-- Appends one event: what append_events does, without arrays and in one function, for the many callers who append one at
-- a time. Returns its version; NULL, with nothing changed, for whatever is not plain: append_events then sees to it.
CREATE OR REPLACE FUNCTION append_event(
  p_stream_id uuid, p_stream_key text, p_event_id uuid, p_event_type text, p_shape integer, p_payload json,
  p_metadata json, p_correlation_id uuid, p_causation_id uuid, p_expected_version bigint,
  p_as_of timestamptz DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_version bigint;
  v_queues text[];
  v_as_of timestamptz;
  v_plain boolean;
BEGIN
  -- See store_message.
  IF (p_event_id > '00000000-0000-0000-0000-000000000000' AND p_stream_id > '00000000-0000-0000-0000-000000000000'
    AND p_stream_id <> p_event_id AND p_event_type ~ '^[A-Za-z0-9_.+/:-]+$' AND length(p_event_type) <= 200
    AND octet_length(p_payload::text) <= 1024 AND strpos(p_payload::text, '\u') = 0
    AND current_setting('transaction_isolation') = 'read committed') IS NOT TRUE
  THEN
    RETURN NULL;
  END IF;
  INSERT INTO wh_streams AS w (stream_id, stream_key, event_version) VALUES (p_stream_id, p_stream_key, 1)
  ON CONFLICT (stream_id) DO UPDATE
  SET stream_key = COALESCE(w.stream_key, EXCLUDED.stream_key), event_version = w.event_version + 1
  RETURNING w.event_version INTO v_version;
  PERFORM pg_advisory_xact_lock_shared(lock_key('event types'));
  v_as_of := COALESCE(p_as_of, clock_timestamp());
  SELECT t.queues INTO v_queues FROM wh_event_types t WHERE t.event_type = p_event_type;
  v_plain := v_queues IS NOT NULL AND COALESCE(p_expected_version = v_version - 1, true);
  IF v_plain THEN
    INSERT INTO wh_event_store (stream_id, version, event_id, event_type, shape, payload, metadata, correlation_id,
      causation_id, created_at, arrival)
    VALUES (p_stream_id, v_version, p_event_id, p_event_type, p_shape, p_payload, p_metadata, p_correlation_id,
      p_causation_id, v_as_of, arrival())
    ON CONFLICT DO NOTHING;
    v_plain := FOUND;
  END IF;
  IF NOT v_plain THEN
    UPDATE wh_streams SET event_version = event_version - 1 WHERE stream_id = p_stream_id;
    RETURN NULL;
  END IF;
  IF v_queues <> '{}' THEN
    PERFORM activate_event_work(ARRAY[p_stream_id], ARRAY[v_version], ARRAY[p_event_id], ARRAY[p_event_type], v_as_of);
  END IF;
  PERFORM wake_waiting_instances();
  PERFORM wake_subscribers();
  RETURN v_version;
END;
$$;
