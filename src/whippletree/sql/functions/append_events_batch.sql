-- Appends events given as JSON, in the order given, inside the caller's transaction, from any client; returns their
-- versions. An event is written like a message; shape and expected_version, the version at which its stream is believed
-- to be before this call, may stand beside. One bad event refuses all of them.
CREATE OR REPLACE FUNCTION append_events_batch(p_events jsonb, p_as_of timestamptz DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_read record;
BEGIN
  SELECT array_agg(r.stream_id) AS stream_ids, array_agg(r.stream_key) AS stream_keys,
    array_agg(r.message_id) AS event_ids, array_agg(r.message_type) AS event_types,
    array_agg(COALESCE((p_events -> (r.place - 1) ->> 'shape')::integer, 1)) AS shapes,
    array_agg(r.payload) AS payloads, array_agg(r.headers) AS metadata, array_agg(r.correlation_id) AS correlation_ids,
    array_agg(r.causation_id) AS causation_ids,
    COALESCE(array_agg(r.stream_id) FILTER (WHERE x.expected IS NOT NULL), '{}') AS expected_streams,
    COALESCE(array_agg(x.expected) FILTER (WHERE x.expected IS NOT NULL), '{}') AS expected_versions,
    min(r.place) FILTER (WHERE r.fault IS NOT NULL OR r.stream_id IS NULL) AS bad_place,
    (array_agg(COALESCE(r.fault, 'an event needs a stream'))
      FILTER (WHERE r.fault IS NOT NULL OR r.stream_id IS NULL))[1] AS fault
  INTO v_read
  FROM read_new_messages('events', p_events) r
  CROSS JOIN LATERAL (SELECT (p_events -> (r.place - 1) ->> 'expected_version')::bigint AS expected) x;
  IF v_read.fault IS NOT NULL THEN
    RAISE EXCEPTION 'event % cannot be appended: %', v_read.bad_place, v_read.fault USING ERRCODE = 'WH004';
  END IF;
  RETURN append_events(v_read.stream_ids, v_read.stream_keys, v_read.event_ids, v_read.event_types, v_read.shapes,
    v_read.payloads, v_read.metadata, v_read.correlation_ids, v_read.causation_ids, v_read.expected_streams,
    v_read.expected_versions, p_as_of);
END;
$$;
