-- Removes the workers' rows, locked by the caller (see lease_streams), of streams with nothing after the given version.
-- First lock out storers, then look: a message committed before the lock is seen, and none can come after it.
-- A stream that somebody is storing into just now is left alone. Returns how many were removed.
CREATE OR REPLACE FUNCTION remove_drained_streams(p_rows tid[], p_through bigint[])
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_rows tid[];
  v_through bigint[];
  v_removed integer;
BEGIN
  SELECT array_agg(e.row_id), array_agg(e.through) INTO v_rows, v_through
  FROM (
    SELECT d.row_id, d.through
    FROM unnest(p_rows, p_through) AS d(row_id, through)
    JOIN wh_active_streams s ON s.ctid = d.row_id
    -- Messages are looked up here, because a call for each of many short streams would double the cost of finishing them.
    WHERE CASE WHEN s.queue IN ('outbox', 'inbox') THEN NOT EXISTS (SELECT FROM wh_messages m
        WHERE m.queue = s.queue AND m.stream_id = s.stream_id AND m.version > d.through)
      ELSE work_through(s.queue, s.stream_id, d.through, 1) IS NULL END
    FOR UPDATE OF s SKIP LOCKED
  ) e;
  DELETE FROM wh_active_streams s
  USING unnest(v_rows, v_through) AS d(row_id, through)
  WHERE s.ctid = d.row_id
    AND CASE WHEN s.queue IN ('outbox', 'inbox') THEN NOT EXISTS (SELECT FROM wh_messages m
        WHERE m.queue = s.queue AND m.stream_id = s.stream_id AND m.version > d.through)
      ELSE work_through(s.queue, s.stream_id, d.through, 1) IS NULL END;
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END;
$$;
