-- Whether a time for which something was scheduled is still to come; NULL when it was not scheduled. A message of which
-- this is true holds back what follows it in its stream.
CREATE OR REPLACE FUNCTION is_ahead(p_time timestamptz, p_as_of timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_time > p_as_of;
