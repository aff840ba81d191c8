-- Locks ready streams of one perspective or receptor, oldest first, and says how far each may be handed out; through is
-- NULL for one with nothing to hand out. The rules are those of pick_streams.
CREATE OR REPLACE FUNCTION pick_event_streams(
  p_owners uuid[], p_queue text, p_limit integer, p_run_limit integer, p_max_attempts integer,
  p_ready_since timestamptz, p_as_of timestamptz)
RETURNS TABLE (row_id tid, stream_id uuid, head_version bigint, attempts integer, through bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
  WITH candidate AS MATERIALIZED (
    SELECT s.ctid AS row_id, s.stream_id, s.head_version, s.attempts
    FROM wh_active_streams s
    WHERE s.queue = p_queue AND is_ready(s.ready_at, s.lease_expiry, p_as_of) AND s.ready_at >= p_ready_since
      AND is_open_to(p_owners, s.instance_id,
        (SELECT p.instance_id FROM wh_partitions p
          WHERE p.partition_number = partition_of(s.stream_hash, (SELECT partition_count FROM wh_settings WHERE only_row))))
    ORDER BY s.ready_at
    LIMIT p_limit
    FOR NO KEY UPDATE OF s SKIP LOCKED
  )
  SELECT c.row_id, c.stream_id, c.head_version, c.attempts,
    work_through(p_queue, c.stream_id, c.head_version, run_length(c.attempts, p_run_limit, p_max_attempts))
  FROM candidate c;
END;
$$;
