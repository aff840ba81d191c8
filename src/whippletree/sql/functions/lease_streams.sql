-- Puts a lease on streams that the caller has locked. They are named by where their rows lie, which costs less than to
-- look up a key once more; a locked row stays where it is. No indexed column changes, so that no index is written.
CREATE OR REPLACE FUNCTION lease_streams(
  p_instance_id uuid, p_rows tid[], p_through bigint[], p_attempts integer[], p_lease_token bigint,
  p_lease_expiry timestamptz, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  UPDATE wh_active_streams s
  SET instance_id = p_instance_id, lease_token = p_lease_token, leased_through = r.through, ready_since = s.ready_at,
    lease_expiry = p_lease_expiry, attempts = r.attempts, moved_at = p_as_of
  FROM unnest(p_rows, p_through, p_attempts) AS r(row_id, through, attempts)
  WHERE s.ctid = r.row_id;
END;
$$;
