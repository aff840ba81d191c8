-- Appends events to their streams, in the order given, inside the caller's transaction, together with the work that they
-- make; returns their versions. p_expected_versions names, for each stream of p_expected_streams, the version at which
-- the caller believes it to be. Idempotent by event id: events that are all there already are left alone.
CREATE OR REPLACE FUNCTION append_events(
  p_stream_ids uuid[], p_stream_keys text[], p_event_ids uuid[], p_event_types text[], p_shapes integer[],
  p_payloads json[], p_metadata json[], p_correlation_ids uuid[], p_causation_ids uuid[],
  p_expected_streams uuid[] DEFAULT '{}', p_expected_versions bigint[] DEFAULT '{}', p_as_of timestamptz DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_versions bigint[];
  v_as_of timestamptz;
  v_arrival bigint;
BEGIN
  -- Most come alone.
  IF cardinality(p_event_ids) = 1 AND p_expected_streams IN ('{}', p_stream_ids) THEN
    v_versions := ARRAY[append_event(p_stream_ids[1], p_stream_keys[1], p_event_ids[1], p_event_types[1], p_shapes[1],
      p_payloads[1], p_metadata[1], p_correlation_ids[1], p_causation_ids[1], p_expected_versions[1], p_as_of)];
    IF v_versions[1] IS NOT NULL THEN
      RETURN v_versions;
    END IF;
  END IF;
  PERFORM require_storable(p_stream_ids, p_event_ids, p_event_types, p_payloads);
  PERFORM lock_writers(p_stream_ids);
  v_versions := appended_versions(p_stream_ids, p_event_ids);
  IF v_versions IS NOT NULL THEN
    RETURN v_versions;
  END IF;
  PERFORM require_versions(p_expected_streams, p_expected_versions);
  PERFORM resolve_event_types(p_event_types);
  v_versions := number_messages('events', p_stream_ids, p_stream_keys);
  v_as_of := COALESCE(p_as_of, clock_timestamp());
  -- After the lock of resolve_event_types, or a rebase could come between.
  v_arrival := arrival();

  INSERT INTO wh_event_store (stream_id, version, event_id, event_type, shape, payload, metadata, correlation_id,
    causation_id, created_at, arrival)
  SELECT e.stream_id, e.version, e.event_id, e.event_type, e.shape, e.payload, e.metadata, e.correlation_id,
    e.causation_id, v_as_of, v_arrival
  FROM unnest(p_stream_ids, v_versions, p_event_ids, p_event_types, p_shapes, p_payloads, p_metadata,
    p_correlation_ids, p_causation_ids) WITH ORDINALITY
    AS e(stream_id, version, event_id, event_type, shape, payload, metadata, correlation_id, causation_id, place)
  ORDER BY e.place;
  PERFORM activate_event_work(p_stream_ids, v_versions, p_event_ids, p_event_types, v_as_of);
  PERFORM wake_waiting_instances();
  PERFORM wake_subscribers();
  RETURN v_versions;
END;
$$;
