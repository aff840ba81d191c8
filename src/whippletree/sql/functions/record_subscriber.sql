-- Notes what the holder does at present, and returns how things are: somebody may have redriven, skipped or paused.
-- Writes only a change. Raises when the subscriber is no longer the caller's.
CREATE OR REPLACE FUNCTION record_subscriber(
  p_name text, p_epoch bigint, p_state text, p_waiting boolean, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (
  checkpoint bigint, epoch bigint, state text, waiting boolean, attempts integer, held_up double precision,
  server timestamptz)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM require_epoch(p_name, p_epoch);
  UPDATE wh_subscribers s SET state = p_state, waiting = p_waiting, updated_at = p_as_of
  WHERE s.subscriber_name = p_name AND s.epoch = p_epoch AND (s.state, s.waiting) <> (p_state, p_waiting)
    AND is_parked(s.retry_at) IS NOT TRUE;
  RETURN QUERY
  SELECT s.checkpoint, s.epoch, s.state, s.waiting, s.attempts, subscriber_held_up(s.paused, s.retry_at, p_as_of),
    pg_postmaster_start_time()
  FROM wh_subscribers s WHERE s.subscriber_name = p_name;
END;
$$;
