-- Locks, in key order, those of the reported streams that are leased to the reporter under the token it names, and whose
-- lease covers the version it reports.
--
-- Its conditions, as those of every join by key here, keep any plan but one from being made: the reported streams first, then
-- each by its key. stream_id = ANY (ARRAY[…]) and an order by the reported keys leave a planner that believes the table to be
-- empty no reason to read the table in key order instead.
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
  SELECT r.place::integer, s.ctid, s.queue, s.stream_id, s.head_version, r.through
  FROM unnest(p_queues, p_stream_ids, p_lease_tokens, p_through) WITH ORDINALITY
    AS r(queue, stream_id, lease_token, through, place)
  JOIN wh_active_streams s ON s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue
  WHERE s.instance_id = p_instance_id AND s.lease_token = r.lease_token
    AND r.through > s.head_version AND r.through <= s.leased_through
  ORDER BY r.queue COLLATE "C", r.stream_id
  FOR NO KEY UPDATE OF s;
END;
$$;
