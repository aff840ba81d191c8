-- Locks, in key order, those of the reported streams that are leased to the reporter under the token it names, and whose
-- lease covers the version it reports.
CREATE OR REPLACE FUNCTION hold_streams(
  p_instance_id uuid, p_queues text[], p_stream_ids uuid[], p_lease_tokens bigint[], p_through bigint[])
RETURNS TABLE (place integer, row_id tid, queue text, stream_id uuid, head_version bigint, through bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT r.place::integer, h.row_id, h.queue, h.stream_id, h.head_version, r.through
  FROM (
    SELECT r.* FROM unnest(p_queues, p_stream_ids, p_lease_tokens, p_through) WITH ORDINALITY
      AS r(queue, stream_id, lease_token, through, place)
    ORDER BY r.queue COLLATE "C", r.stream_id
  ) r
  CROSS JOIN LATERAL (
    SELECT s.ctid AS row_id, s.queue, s.stream_id, s.head_version
    FROM wh_active_streams s
    WHERE s.stream_id = r.stream_id AND s.queue = r.queue
      AND s.instance_id = p_instance_id AND s.lease_token = r.lease_token
      AND r.through > s.head_version AND r.through <= s.leased_through
    FOR NO KEY UPDATE
  ) h;
END;
$$;
