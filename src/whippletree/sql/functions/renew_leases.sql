-- Extends leases that are still the reporter's. Returns the places of those that are not: their work is to be dropped.
CREATE OR REPLACE FUNCTION renew_leases(
  p_instance_id uuid, p_queues text[], p_stream_ids uuid[], p_lease_tokens bigint[], p_lease_seconds double precision,
  p_as_of timestamptz)
RETURNS integer[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_places integer[];
BEGIN
  IF cardinality(p_stream_ids) = 0 THEN
    RETURN '{}';
  END IF;
  SELECT array_agg(h.place) INTO v_places
  FROM (
    SELECT r.place
    FROM unnest(p_queues, p_stream_ids, p_lease_tokens) WITH ORDINALITY AS r(queue, stream_id, lease_token, place)
    JOIN wh_active_streams s ON s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue
    WHERE s.instance_id = p_instance_id AND s.lease_token = r.lease_token
    ORDER BY r.queue COLLATE "C", r.stream_id
    FOR NO KEY UPDATE OF s
  ) h;

  UPDATE wh_active_streams s
  SET lease_expiry = p_as_of + make_interval(secs => p_lease_seconds),
    ready_at = p_as_of + make_interval(secs => p_lease_seconds)
  FROM unnest(p_queues, p_stream_ids) WITH ORDINALITY AS r(queue, stream_id, place)
  WHERE r.place = ANY (v_places) AND s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue;
  RETURN ARRAY(
    SELECT place FROM generate_subscripts(p_stream_ids, 1) AS place WHERE place <> ALL (COALESCE(v_places, '{}')));
END;
$$;
