-- Whether a stream is some instance's for now; false without a lease, and when it has run out.
CREATE OR REPLACE FUNCTION is_leased(p_lease_expiry timestamptz, p_as_of timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN COALESCE(p_lease_expiry > p_as_of, false);
