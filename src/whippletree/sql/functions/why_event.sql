-- What became of a stored event: for each perspective, receptor and subscriber that it concerns, done, or why not.
CREATE OR REPLACE FUNCTION why_event(p_event_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_event record;
  v_queue text;
BEGIN
  SELECT e.*, COALESCE(t.queues, '{}') AS queues INTO v_event
  FROM wh_event_store e LEFT JOIN wh_event_types t ON t.event_type = e.event_type WHERE e.event_id = p_event_id;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  RETURN NEXT format('event %s (%s) is version %s of stream %s, stored %s ago', p_event_id, v_event.event_type,
    v_event.version, described_stream(v_event.stream_id), spoken_time(p_as_of - v_event.created_at));
  FOREACH v_queue IN ARRAY v_event.queues LOOP
    IF EXISTS (SELECT FROM wh_dead_letters d WHERE d.message_id = p_event_id AND d.queue = v_queue) THEN
      RETURN NEXT v_queue || ' passed over it';
    ELSIF v_queue LIKE 'receptor/%' AND NOT EXISTS (SELECT FROM wh_receptor_log l
      WHERE l.receptor_name = substr(v_queue, 10) AND l.stream_id = v_event.stream_id AND l.version = v_event.version) THEN
      RETURN NEXT v_queue || ' never gets it: it was stored before the receptor was registered for its type';
    ELSIF is_handled(v_queue, v_event.stream_id, v_event.version) THEN
      RETURN NEXT v_queue || ' has it';
    ELSE
      RETURN NEXT v_queue || ' does not have it yet';
      RETURN QUERY SELECT '  ' || why_stream(v_queue, v_event.stream_id, p_as_of);
    END IF;
  END LOOP;
  IF v_event.queues = '{}' THEN
    RETURN NEXT format('no perspective and no receptor is registered for %s', v_event.event_type);
  END IF;
  RETURN QUERY SELECT why_followed(p_event_id, v_event.stream_id, v_event.version);
END;
$$;
