-- What became of a stored event: for each perspective and receptor that it concerns, done, or why not.
CREATE OR REPLACE FUNCTION why_event(p_event_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_event record;
  v_queue text;
BEGIN
  SELECT e.*, t.queues INTO v_event
  FROM wh_event_store e LEFT JOIN wh_event_types t ON t.event_type = e.event_type WHERE e.event_id = p_event_id;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  RETURN NEXT format('event %s (%s) is version %s of stream %s, stored %s ago', p_event_id, v_event.event_type,
    v_event.version, described_stream(v_event.stream_id), spoken_time(p_as_of - v_event.created_at));
  FOREACH v_queue IN ARRAY COALESCE(v_event.queues, '{}') LOOP
    IF is_handled(v_queue, v_event.stream_id, v_event.version) THEN
      RETURN NEXT v_queue || ' has it';
    ELSE
      RETURN NEXT v_queue || ' does not have it yet';
      RETURN QUERY SELECT '  ' || why_stream(v_queue, v_event.stream_id, p_as_of);
    END IF;
  END LOOP;
  IF COALESCE(v_event.queues, '{}') = '{}' THEN
    RETURN NEXT format('no perspective and no receptor is registered for %s', v_event.event_type);
  END IF;
END;
$$;
