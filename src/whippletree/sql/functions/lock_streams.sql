-- Locks the named streams in key order. A batch that ends some and extends others takes all its locks here first, so
-- that two batches never wait for each other in a circle.
CREATE OR REPLACE FUNCTION lock_streams(p_queues text[], p_stream_ids uuid[])
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  IF cardinality(p_stream_ids) > 0 THEN
    PERFORM
    FROM (SELECT r.queue COLLATE "C" AS queue, r.stream_id FROM unnest(p_queues, p_stream_ids) AS r(queue, stream_id)
      ORDER BY 1, 2) r
    CROSS JOIN LATERAL (
      SELECT FROM wh_active_streams s WHERE s.queue = r.queue AND s.stream_id = r.stream_id FOR NO KEY UPDATE
    ) s;
  END IF;
END;
$$;
