-- Ends following, in good order: no attempt is counted against the next event. Changes nothing under another epoch.
CREATE OR REPLACE FUNCTION leave_subscriber(
  p_name text, p_epoch bigint, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  UPDATE wh_subscribers s
  SET holder = NULL, waiting = false, updated_at = p_as_of,
    state = CASE WHEN s.state = 'parked' THEN 'parked' ELSE 'standby' END
  WHERE s.subscriber_name = p_name AND s.epoch = p_epoch;
$$;
