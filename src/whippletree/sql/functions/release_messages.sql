-- Gives leased messages back untried, from a version on; NULL gives back all that is left of the run. The attempt does
-- not count. Returns the places of the reports that were refused, because the lease is not the reporter's.
CREATE OR REPLACE FUNCTION release_messages(
  p_instance_id uuid, p_queues text[], p_stream_ids uuid[], p_lease_tokens bigint[], p_from_versions bigint[],
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
    FROM unnest(p_queues, p_stream_ids, p_lease_tokens, p_from_versions) WITH ORDINALITY
      AS r(queue, stream_id, lease_token, from_version, place)
    JOIN wh_active_streams s ON s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue
    WHERE s.instance_id = p_instance_id AND s.lease_token = r.lease_token
      AND (r.from_version IS NULL OR r.from_version BETWEEN s.head_version + 1 AND s.leased_through)
    ORDER BY r.queue COLLATE "C", r.stream_id
    FOR NO KEY UPDATE OF s
  ) h;

  UPDATE wh_active_streams s
  SET attempts = CASE WHEN r.from_version > s.head_version + 1 THEN s.attempts ELSE s.attempts - 1 END,
    ready_at = CASE WHEN r.from_version > s.head_version + 1 THEN s.ready_at ELSE p_as_of END,
    instance_id = CASE WHEN r.from_version > s.head_version + 1 THEN s.instance_id END,
    lease_expiry = CASE WHEN r.from_version > s.head_version + 1 THEN s.lease_expiry END,
    lease_token = CASE WHEN r.from_version > s.head_version + 1 THEN s.lease_token END,
    leased_through = CASE WHEN r.from_version > s.head_version + 1 THEN r.from_version - 1 END,
    moved_at = p_as_of
  FROM unnest(p_queues, p_stream_ids, p_from_versions) WITH ORDINALITY AS r(queue, stream_id, from_version, place)
  WHERE r.place = ANY (v_places) AND s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue;
  RETURN ARRAY(
    SELECT place FROM generate_subscripts(p_stream_ids, 1) AS place WHERE place <> ALL (COALESCE(v_places, '{}')));
END;
$$;
