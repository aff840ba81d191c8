-- Whether a stream is held at its head until somebody redrives or skips it.
CREATE OR REPLACE FUNCTION is_parked(p_ready_at timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_ready_at = 'infinity';
