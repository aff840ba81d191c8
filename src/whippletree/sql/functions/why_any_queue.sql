-- How a stream stands in every queue in which it has work.
CREATE OR REPLACE FUNCTION why_any_queue(p_stream_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_queue text;
  v_waits boolean := false;
BEGIN
  FOR v_queue IN
    SELECT q FROM (
      SELECT unnest(ARRAY['outbox', 'inbox']) AS q
      UNION SELECT event_queues('perspective/*') UNION SELECT event_queues('receptor/*')) k
    WHERE EXISTS (SELECT FROM wh_active_streams s WHERE s.queue = q AND s.stream_id = p_stream_id)
    ORDER BY q
  LOOP
    v_waits := true;
    RETURN NEXT format('stream %s has work in %s', described_stream(p_stream_id), v_queue);
    RETURN QUERY SELECT why_stream(v_queue, p_stream_id, p_as_of);
  END LOOP;
  IF NOT v_waits THEN
    RETURN QUERY SELECT format('nothing of stream %s waits; it has had %s, %s in the outbox and %s in the inbox',
      described_stream(p_stream_id), spoken_count(s.event_version, 'event'), spoken_count(s.outbox_version, 'message'),
      spoken_count(s.inbox_version, 'message'))
    FROM wh_streams s WHERE s.stream_id = p_stream_id;
  END IF;
  -- Who stores into the stream holds its row to the commit, and whoever stores next waits.
  RETURN QUERY SELECT 'those who store into it wait for ' || described_session(s.xmax)
  FROM wh_streams s WHERE s.stream_id = p_stream_id AND described_session(s.xmax) IS NOT NULL;
END;
$$;
