-- Renews leases and writes the heartbeat of an instance whose program does not get round to it. What its own transactions
-- have locked just now is passed over: nobody else can claim it either. Returns the places of the leases renewed.
CREATE OR REPLACE FUNCTION keep_alive(
  p_instance_id uuid, p_queues text[], p_stream_ids uuid[], p_lease_tokens bigint[], p_lease_seconds double precision)
RETURNS integer[]
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_as_of timestamptz := clock_timestamp();
  v_places integer[];
BEGIN
  SELECT array_agg(h.place) INTO v_places
  FROM (
    SELECT r.place::integer
    FROM unnest(p_queues, p_stream_ids, p_lease_tokens) WITH ORDINALITY AS r(queue, stream_id, lease_token, place)
    JOIN wh_active_streams s ON s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue
    WHERE s.instance_id = p_instance_id AND s.lease_token = r.lease_token
    FOR NO KEY UPDATE OF s SKIP LOCKED
  ) h;
  PERFORM renew_leases(p_instance_id, array_agg(p_queues[i]), array_agg(p_stream_ids[i]), array_agg(p_lease_tokens[i]),
    p_lease_seconds, v_as_of)
  FROM unnest(v_places) AS i
  HAVING count(*) > 0;
  UPDATE wh_service_instances SET last_heartbeat_at = v_as_of
  WHERE instance_id = p_instance_id AND last_heartbeat_at < v_as_of - interval '1 second';
  RETURN COALESCE(v_places, '{}');
END;
$$;
