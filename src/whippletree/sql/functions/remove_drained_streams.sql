-- Removes the workers' rows, locked by the caller, of streams with nothing after the given version.
-- First lock out storers, then look: a message committed before the lock is seen, and none can come after it.
-- A stream that somebody is storing into just now is left alone. Returns how many were removed.
CREATE OR REPLACE FUNCTION remove_drained_streams(p_queues text[], p_stream_ids uuid[], p_through bigint[])
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_queues text[];
  v_stream_ids uuid[];
  v_through bigint[];
  v_removed integer;
BEGIN
  SELECT array_agg(e.queue), array_agg(e.stream_id), array_agg(e.through) INTO v_queues, v_stream_ids, v_through
  FROM (
    SELECT s.queue, s.stream_id, d.through
    FROM unnest(p_queues, p_stream_ids, p_through) AS d(queue, stream_id, through)
    JOIN wh_active_streams s ON s.queue = ANY (ARRAY[d.queue]) AND s.stream_id = d.stream_id
    -- Messages are looked up here, because a call for each of many short streams would double the cost of finishing them.
    WHERE CASE WHEN d.queue IN ('outbox', 'inbox') THEN NOT EXISTS (SELECT FROM wh_messages m
        WHERE m.queue = d.queue AND m.stream_id = d.stream_id AND m.version > d.through)
      ELSE work_through(d.queue, d.stream_id, d.through, 1) IS NULL END
    FOR UPDATE OF s SKIP LOCKED
  ) e;
  DELETE FROM wh_active_streams s
  USING unnest(v_queues, v_stream_ids, v_through) AS d(queue, stream_id, through)
  WHERE s.queue = ANY (ARRAY[d.queue]) AND s.stream_id = d.stream_id
    AND CASE WHEN d.queue IN ('outbox', 'inbox') THEN NOT EXISTS (SELECT FROM wh_messages m
        WHERE m.queue = d.queue AND m.stream_id = d.stream_id AND m.version > d.through)
      ELSE work_through(d.queue, d.stream_id, d.through, 1) IS NULL END;
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END;
$$;
