-- Whether a claim looks at a stream: its work waits, its retry is due, or its lease has run out.
--
-- This and the other conditions of a claim are each written once, and asked by the claim, by `why` and by whoever tells of
-- streams, so that none can say what another does not do. PostgreSQL puts such a function's text in place of its call: it
-- sets nothing, and is parsed when it is created. The second half lets it use the index of ready streams.
CREATE OR REPLACE FUNCTION is_ready(p_ready_at timestamptz, p_lease_expiry timestamptz, p_as_of timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_ready_at <= p_as_of AND p_ready_at < 'infinity' AND NOT is_leased(p_lease_expiry, p_as_of);
