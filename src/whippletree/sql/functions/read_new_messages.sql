-- Reads messages to be stored from JSON, and says of each what is wrong with it, if anything is.
CREATE OR REPLACE FUNCTION read_new_messages(p_queue text, p_elements jsonb)
RETURNS TABLE (
  place integer, stream_id uuid, stream_key text, message_id uuid, message_type text, topic text, payload json,
  headers json, correlation_id uuid, causation_id uuid, scheduled_for timestamptz, fault text)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT r.place, r.stream_id, r.stream_key, r.message_id, r.message_type, r.topic, r.payload, r.headers,
    r.correlation_id, r.causation_id, r.scheduled_for,
    CASE
      WHEN jsonb_typeof(r.e) <> 'object' THEN 'the element is not a JSON object'
      WHEN r.e ->> 'stream_id' IS NOT NULL AND uuid_or_null(r.e ->> 'stream_id') IS NULL THEN 'stream_id is not a UUID'
      WHEN r.e ->> 'stream_id' IS NOT NULL AND stream_id_of(r.stream_key) <> r.stream_id
        THEN 'stream_id and stream_key name two streams; give one of them'
      WHEN r.e ->> 'partition_number' IS NOT NULL THEN 'partition_number follows from the stream; leave it out'
      WHEN r.e ->> 'partition_key' <> COALESCE(r.stream_key, r.e ->> 'stream_id', '')
        THEN 'partition_key is another than the stream: a stream has one partition, leave partition_key out'
      WHEN r.e ->> 'scheduled_for' IS NOT NULL AND r.scheduled_for IS NULL THEN 'scheduled_for is not a time'
      WHEN r.e ->> 'correlation_id' IS NOT NULL AND r.correlation_id IS NULL THEN 'correlation_id is not a UUID'
      WHEN r.e ->> 'causation_id' IS NOT NULL AND r.causation_id IS NULL THEN 'causation_id is not a UUID'
      WHEN r.e -> 'payload' IS NOT NULL AND r.payload IS NULL THEN 'payload is not JSON'
      -- OFFSET 0 keeps each of these an index probe: a planner that believes the table to be small would read all of it.
      WHEN p_queue = 'outbox' AND EXISTS (SELECT FROM wh_messages m
        WHERE m.message_id = r.message_id AND m.queue = 'outbox' AND m.version > 0 OFFSET 0)
        THEN 'message_id is already waiting in the outbox'
      WHEN r.stream_id IS NULL AND (r.message_id = ANY ((SELECT new_streams(p_elements))::uuid[])
        OR EXISTS (SELECT FROM wh_streams w WHERE w.stream_id = r.message_id OFFSET 0))
        THEN 'message_id is the id of a stream; give every message an id of its own'
      WHEN EXISTS (SELECT FROM wh_messages m WHERE m.queue = p_queue AND m.stream_id = r.stream_id AND m.version = 1
        AND m.message_id = r.stream_id OFFSET 0) THEN 'stream_id is the id of a message that waits; give the stream another'
      WHEN row_number() OVER (PARTITION BY r.message_id ORDER BY r.place) > 1 AND r.message_id IS NOT NULL AND p_queue = 'outbox'
        THEN 'message_id stands twice in this batch'
      ELSE COALESCE(
        envelope_fault(r.stream_key, r.topic, r.headers, r.scheduled_for, s.max_payload_bytes),
        message_fault(r.stream_id, r.message_id, r.message_type, r.payload, s.max_payload_bytes))
    END
  FROM wh_settings s, (
    SELECT n.e, n.place::integer,
      COALESCE(uuid_or_null(n.e ->> 'stream_id'), stream_id_of(n.e ->> 'stream_key')) AS stream_id,
      n.e ->> 'stream_key' AS stream_key, uuid_or_null(n.e ->> 'message_id') AS message_id,
      n.e ->> 'message_type' AS message_type, COALESCE(n.e ->> 'topic', n.e ->> 'source_topic', '') AS topic,
      json_or_null(n.e -> 'payload') AS payload, (n.e -> 'headers')::json AS headers,
      uuid_or_null(n.e ->> 'correlation_id') AS correlation_id, uuid_or_null(n.e ->> 'causation_id') AS causation_id,
      time_or_null(n.e ->> 'scheduled_for') AS scheduled_for
    FROM jsonb_array_elements(p_elements) WITH ORDINALITY AS n(e, place)
    -- Reads each element once; without it every use above would read it again.
    OFFSET 0
  ) r
  ORDER BY r.place;
END;
$$;
