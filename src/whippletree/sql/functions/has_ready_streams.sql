-- Whether a claim from a queue could find anything at all, in anybody's partitions. Most polls find nothing, and need not
-- ask whose the partitions are. In the order of a claim, which leaves the planner no other index.
CREATE OR REPLACE FUNCTION has_ready_streams(p_queue text, p_ready_since timestamptz, p_as_of timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN (
    SELECT s.ready_at FROM wh_active_streams s
    WHERE s.queue = p_queue AND is_ready(s.ready_at, s.lease_expiry, p_as_of) AND s.ready_at >= p_ready_since
    ORDER BY s.ready_at
    LIMIT 1
  ) IS NOT NULL;
END;
$$;
