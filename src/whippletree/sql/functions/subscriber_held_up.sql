-- For how many seconds a subscriber is to apply nothing: until its failed event is tried again, and without end while it
-- is paused or parked. Its holder asks this, and `why` does.
CREATE OR REPLACE FUNCTION subscriber_held_up(p_paused boolean, p_retry_at timestamptz, p_as_of timestamptz)
RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_paused OR is_parked(p_retry_at) THEN 'infinity'
  ELSE greatest(0, EXTRACT(epoch FROM p_retry_at - p_as_of)) END::double precision;
