-- Begins to follow as a subscriber: raises its epoch, so that whoever followed before can commit nothing more. When the
-- former holder broke off in the middle of its work, that counts as an attempt: an event that ends its process is found.
CREATE OR REPLACE FUNCTION hold_subscriber(
  p_name text, p_instance_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (
  checkpoint bigint, epoch bigint, state text, waiting boolean, attempts integer, held_up double precision,
  server timestamptz)
LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  UPDATE wh_subscribers s
  SET epoch = s.epoch + 1, holder = p_instance_id, waiting = false, updated_at = p_as_of,
    state = CASE WHEN s.state = 'parked' THEN 'parked' ELSE 'catching up' END,
    attempts = s.attempts + (s.holder IS NOT NULL AND NOT s.waiting AND s.state <> 'parked')::integer
  WHERE s.subscriber_name = p_name
  RETURNING s.checkpoint, s.epoch, s.state, s.waiting, s.attempts, subscriber_held_up(s.paused, s.retry_at, p_as_of),
    pg_postmaster_start_time();
$$;
