-- Whether a stream is held at its head until somebody redrives or skips it. Put so that a search for what is not parked can
-- use the index of ready streams.
CREATE OR REPLACE FUNCTION is_parked(p_ready_at timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT p_ready_at < 'infinity';
