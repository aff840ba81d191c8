-- How a queue stands, in sentences: who works it, what waits in it, and the first that is in trouble.
CREATE OR REPLACE FUNCTION why_queue(p_queue text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count record;
  v_trouble record;
BEGIN
  IF p_queue NOT IN ('outbox', 'inbox') AND NOT EXISTS (
    SELECT FROM event_queues(split_part(p_queue, '/', 1) || '/*') q WHERE q = p_queue) THEN
    RETURN NEXT format('no %s is registered', replace(p_queue, '/', ' of the name '));
    RETURN;
  END IF;
  RETURN QUERY SELECT p_queue || ' is worked by ' || described_instance(i.instance_id, p_as_of)
  FROM wh_service_instances i
  WHERE works_queue(i.queues, p_queue) ORDER BY i.started_at LIMIT 5;
  RETURN QUERY SELECT why FROM nobody_works(p_queue, p_as_of) AS why WHERE why IS NOT NULL;
  SELECT count(*) FILTER (WHERE is_ready(s.ready_at, s.lease_expiry, p_as_of)) AS ready,
    min(s.ready_at) FILTER (WHERE is_ready(s.ready_at, s.lease_expiry, p_as_of)) AS oldest,
    count(*) FILTER (WHERE is_leased(s.lease_expiry, p_as_of)) AS leased,
    count(*) FILTER (WHERE s.instance_id IS NULL AND NOT is_ready(s.ready_at, s.lease_expiry, p_as_of)
      AND NOT is_parked(s.ready_at)) AS later,
    count(*) FILTER (WHERE is_parked(s.ready_at)) AS parked
  INTO v_count FROM wh_active_streams s WHERE s.queue = p_queue;
  RETURN NEXT COALESCE('its streams: ' || NULLIF(concat_ws(', ',
    CASE WHEN v_count.ready > 0 THEN format('%s ready (the first for %s)', v_count.ready, spoken_time(p_as_of - v_count.oldest)) END,
    NULLIF(v_count.leased, 0) || ' leased', NULLIF(v_count.later, 0) || ' for a later time',
    NULLIF(v_count.parked, 0) || ' parked'), ''), 'nothing waits in ' || p_queue);
  FOR v_trouble IN
    SELECT s.stream_id FROM wh_active_streams s
    WHERE s.queue = p_queue AND s.error IS NOT NULL ORDER BY s.ready_at DESC, s.moved_at LIMIT 1
  LOOP
    RETURN QUERY SELECT format('stream %s: %s', described_stream(v_trouble.stream_id), why)
    FROM why_stream(p_queue, v_trouble.stream_id, p_as_of) AS why;
  END LOOP;
END;
$$;
