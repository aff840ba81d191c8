-- Moves the heads of streams, locked by the caller (see lease_streams), over what is finished. A stream with more work is
-- ready at once, behind those that waited. The rest of a run stays leased, and its next piece is being tried.
CREATE OR REPLACE FUNCTION move_heads(p_rows tid[], p_through bigint[], p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  UPDATE wh_active_streams s
  SET head_version = h.through, error = NULL, moved_at = p_as_of,
    attempts = CASE WHEN h.through < s.leased_through THEN 1 ELSE 0 END,
    ready_at = CASE WHEN h.through < s.leased_through THEN s.ready_at ELSE p_as_of END,
    instance_id = CASE WHEN h.through < s.leased_through THEN s.instance_id END,
    lease_expiry = CASE WHEN h.through < s.leased_through THEN s.lease_expiry END,
    lease_token = CASE WHEN h.through < s.leased_through THEN s.lease_token END,
    leased_through = CASE WHEN h.through < s.leased_through THEN s.leased_through END
  FROM unnest(p_rows, p_through) AS h(row_id, through)
  WHERE s.ctid = h.row_id;
END;
$$;
