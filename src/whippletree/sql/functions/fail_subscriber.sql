-- Notes that an event failed, and when it is tried again; without a time the subscriber is parked at it.
CREATE OR REPLACE FUNCTION fail_subscriber(
  p_name text, p_epoch bigint, p_number bigint, p_attempts integer, p_error text, p_retry_seconds double precision,
  p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE wh_subscribers s
  SET failed_number = p_number, attempts = p_attempts, error = p_error, updated_at = p_as_of, waiting = false,
    retry_at = COALESCE(p_as_of + p_retry_seconds * interval '1 second', 'infinity'),
    state = CASE WHEN p_retry_seconds IS NULL THEN 'parked' ELSE s.state END
  WHERE s.subscriber_name = p_name AND s.epoch = p_epoch AND s.checkpoint < p_number;
  IF NOT FOUND THEN
    PERFORM require_epoch(p_name, p_epoch);
  END IF;
END;
$$;
