-- Locks ready streams in the partitions of the given owners, oldest first, and says how far each may be handed out.
-- At most p_limit messages in all, p_run_limit of one stream, about p_byte_limit bytes. The rows are locked as they
-- are pulled, and pulling stops at the limit: nothing is locked that is not needed. through is NULL for a stream with
-- nothing to hand out. Which streams those are is said by is_ready, is_open_to, is_ahead and run_length, which `why` asks too.
--
-- In plpgsql, which keeps its plans: before version 18 PostgreSQL plans a function in SQL at every call.
CREATE OR REPLACE FUNCTION pick_streams(
  p_owners uuid[], p_queue text, p_limit integer, p_run_limit integer, p_byte_limit bigint, p_max_attempts integer,
  p_ready_since timestamptz, p_as_of timestamptz)
RETURNS TABLE (row_id tid, stream_id uuid, head_version bigint, attempts integer, through bigint, ready_at timestamptz)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
  WITH candidate AS MATERIALIZED (
    SELECT s.ctid AS row_id, s.stream_id, s.head_version, s.attempts, s.ready_at
    FROM wh_active_streams s
    WHERE s.queue = p_queue AND is_ready(s.ready_at, s.lease_expiry, p_as_of) AND s.ready_at >= p_ready_since
      AND is_open_to(p_owners, s.instance_id,
        (SELECT p.instance_id FROM wh_partitions p
          WHERE p.partition_number = partition_of(s.stream_hash, (SELECT partition_count FROM wh_settings WHERE only_row))))
    ORDER BY s.ready_at
    LIMIT p_limit
    FOR NO KEY UPDATE OF s SKIP LOCKED
  ), run AS (
    SELECT c.row_id, c.stream_id, c.head_version, c.attempts, c.ready_at, m.version,
      sum(m.bytes) OVER (ROWS UNBOUNDED PRECEDING) - m.bytes AS bytes_before
    FROM candidate c
    LEFT JOIN LATERAL (
      SELECT n.version, n.bytes,
        bool_or(is_ahead(n.scheduled_for, p_as_of)) OVER (ROWS UNBOUNDED PRECEDING) AS held
      FROM (
        SELECT n.version, octet_length(n.payload::text) AS bytes, n.scheduled_for
        FROM wh_messages n
        WHERE n.queue = p_queue AND n.stream_id = c.stream_id AND n.version > c.head_version
        ORDER BY n.version
        LIMIT run_length(c.attempts, p_run_limit, p_max_attempts)
      ) n
    ) m ON m.held IS NOT TRUE -- A message that is not due yet holds back what follows it.
    LIMIT p_limit
  )
  SELECT r.row_id, r.stream_id, r.head_version, r.attempts, max(r.version), r.ready_at
  FROM run r
  WHERE r.bytes_before IS NULL OR r.bytes_before < p_byte_limit
  GROUP BY r.row_id, r.stream_id, r.head_version, r.attempts, r.ready_at;
END;
$$;
