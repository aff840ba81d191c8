-- Locks the writers' rows of the given streams in key order, making those that are missing. Whoever needs other locks
-- besides takes these first.
CREATE OR REPLACE FUNCTION lock_writers(p_stream_ids uuid[])
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  IF cardinality(p_stream_ids) = 0 THEN
    RETURN;
  END IF;
  INSERT INTO wh_streams (stream_id)
  SELECT DISTINCT s FROM unnest(p_stream_ids) AS s WHERE s IS NOT NULL ORDER BY s
  ON CONFLICT DO NOTHING;
  PERFORM
  FROM (SELECT DISTINCT s AS stream_id FROM unnest(p_stream_ids) AS s WHERE s IS NOT NULL ORDER BY s) r
  CROSS JOIN LATERAL (SELECT FROM wh_streams w WHERE w.stream_id = r.stream_id FOR NO KEY UPDATE) w;
END;
$$;
