-- Puts a lease on streams that the caller has locked.
CREATE OR REPLACE FUNCTION lease_streams(
  p_instance_id uuid, p_queue text, p_stream_ids uuid[], p_through bigint[], p_attempts integer[], p_lease_token bigint,
  p_lease_expiry timestamptz, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  UPDATE wh_active_streams s
  SET instance_id = p_instance_id, lease_token = p_lease_token, leased_through = r.through, ready_since = s.ready_at,
    lease_expiry = p_lease_expiry, ready_at = p_lease_expiry, attempts = r.attempts, moved_at = p_as_of
  -- The queue goes with each stream: as a constant it would let a planner that believes the table to be small read all
  -- of the queue and look up each of its rows among ours.
  FROM unnest(array_fill(p_queue, ARRAY[cardinality(p_stream_ids)]), p_stream_ids, p_through, p_attempts)
    AS r(queue, stream_id, through, attempts)
  WHERE s.queue = ANY (ARRAY[r.queue]) AND s.stream_id = r.stream_id;
END;
$$;
