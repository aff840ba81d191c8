-- Stores messages into a queue, in the order given, inside the caller's transaction, and returns their versions.
-- Never leases and never commits. Nothing is checked here that store_outbox and store_inbox have checked.
CREATE OR REPLACE FUNCTION store_messages(
  p_queue text, p_stream_ids uuid[], p_stream_keys text[], p_message_ids uuid[], p_message_types text[],
  p_topics text[], p_payloads json[], p_headers json[], p_correlation_ids uuid[], p_causation_ids uuid[],
  p_scheduled_for timestamptz[], p_as_of timestamptz DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_versions bigint[] := number_messages(p_queue, p_stream_ids, p_stream_keys);
  -- Read after the writers' rows are locked, so that created_at never contradicts the versions of a stream.
  v_as_of timestamptz := COALESCE(p_as_of, clock_timestamp());
  v_stream_ids uuid[];
  v_head_versions bigint[];
  v_ready_at timestamptz[];
BEGIN
  PERFORM require_ids_of_their_own(p_stream_ids, p_message_ids);
  INSERT INTO wh_messages (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, scheduled_for, created_at)
  SELECT p_queue, COALESCE(m.stream_id, m.message_id), m.version, m.message_id, m.message_type, m.topic, m.payload,
    m.headers, m.correlation_id, m.causation_id, m.scheduled_for, v_as_of
  FROM unnest(p_stream_ids, v_versions, p_message_ids, p_message_types, p_topics, p_payloads, p_headers,
    p_correlation_ids, p_causation_ids, p_scheduled_for)
    AS m(stream_id, version, message_id, message_type, topic, payload, headers, correlation_id, causation_id,
      scheduled_for);

  SELECT array_agg(f.stream_id), array_agg(f.version - 1), array_agg(f.ready_at)
  INTO v_stream_ids, v_head_versions, v_ready_at
  FROM (
    SELECT DISTINCT ON (stream_id) COALESCE(m.stream_id, m.message_id) AS stream_id, m.version,
      greatest(v_as_of, m.scheduled_for) AS ready_at
    FROM unnest(p_stream_ids, p_message_ids, v_versions, p_scheduled_for)
      AS m(stream_id, message_id, version, scheduled_for)
    ORDER BY stream_id, m.version
  ) f;
  IF activate_streams(p_queue, v_stream_ids, v_head_versions, v_ready_at, v_as_of) THEN
    PERFORM wake_waiting_instances(p_queue);
  END IF;
  RETURN v_versions;
END;
$$;
