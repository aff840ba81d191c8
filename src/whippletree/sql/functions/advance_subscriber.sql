-- Moves the checkpoint, which ends the transaction of the effects up to there: to be sent together with its COMMIT, so
-- that no client can stop between the two and keep the row locked. Raises when the subscriber is no longer the caller's,
-- or no longer where the caller began: somebody skipped the event, or another server took over, perhaps without the
-- last events, and gives their numbers to others.
CREATE OR REPLACE FUNCTION advance_subscriber(
  p_name text, p_epoch bigint, p_from bigint, p_to bigint, p_server timestamptz,
  p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE wh_subscribers s
  SET checkpoint = p_to, attempts = 0, failed_number = NULL, retry_at = NULL, error = NULL, updated_at = p_as_of
  WHERE s.subscriber_name = p_name AND s.epoch = p_epoch AND s.checkpoint = p_from AND NOT s.paused
    AND p_server = pg_postmaster_start_time();
  IF NOT FOUND THEN
    PERFORM require_epoch(p_name, p_epoch);
    RAISE EXCEPTION 'subscriber % is paused, or no longer at %, or on another server', p_name, p_from USING ERRCODE = 'WH009';
  END IF;
END;
$$;
