-- Notes that an event failed, and when it is tried again; without a time the subscriber is parked at it. On a server that
-- took over, another event may bear its number: nothing is noted there.
CREATE OR REPLACE FUNCTION fail_subscriber(
  p_name text, p_epoch bigint, p_number bigint, p_attempts integer, p_error text, p_retry_seconds double precision,
  p_server timestamptz, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE wh_subscribers s
  SET failed_number = p_number, attempts = p_attempts, error = p_error, updated_at = p_as_of, waiting = false,
    retry_at = COALESCE(p_as_of + p_retry_seconds * interval '1 second', 'infinity'),
    state = CASE WHEN p_retry_seconds IS NULL THEN 'parked' ELSE s.state END
  WHERE s.subscriber_name = p_name AND s.epoch = p_epoch AND s.checkpoint < p_number
    AND p_server = pg_postmaster_start_time();
  IF NOT FOUND THEN
    PERFORM require_epoch(p_name, p_epoch);
  END IF;
END;
$$;
