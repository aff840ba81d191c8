-- Finishes the messages of leased streams up to a version: deletes them (or keeps them, for debugging) and moves the
-- head. A stream with more work is ready at once, behind those that waited; a drained one is removed, unless somebody
-- is storing into it. Each stream is named once. Returns the places of the reports that were refused, because the
-- lease is not the reporter's.
CREATE OR REPLACE FUNCTION complete_messages(
  p_instance_id uuid, p_queues text[], p_stream_ids uuid[], p_lease_tokens bigint[], p_through bigint[],
  p_keep boolean, p_as_of timestamptz)
RETURNS integer[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_places integer[];
  v_queues text[];
  v_stream_ids uuid[];
  v_heads bigint[];
  v_through bigint[];
BEGIN
  IF cardinality(p_stream_ids) = 0 THEN
    RETURN '{}';
  END IF;
  SELECT array_agg(h.place), array_agg(h.queue), array_agg(h.stream_id), array_agg(h.head_version), array_agg(h.through)
  INTO v_places, v_queues, v_stream_ids, v_heads, v_through
  FROM (
    SELECT r.place, s.queue, s.stream_id, s.head_version, r.through
    FROM unnest(p_queues, p_stream_ids, p_lease_tokens, p_through) WITH ORDINALITY
      AS r(queue, stream_id, lease_token, through, place)
    JOIN wh_active_streams s ON s.queue = r.queue AND s.stream_id = r.stream_id
    WHERE s.instance_id = p_instance_id AND s.lease_token = r.lease_token
      AND r.through > s.head_version AND r.through <= s.leased_through
    ORDER BY s.queue, s.stream_id
    FOR NO KEY UPDATE OF s
  ) h;
  IF v_places IS NULL THEN
    RETURN ARRAY(SELECT generate_subscripts(p_stream_ids, 1));
  END IF;

  IF p_keep THEN
    PERFORM keep_finished_messages(v_queues, v_stream_ids, v_heads, v_through, p_as_of);
  END IF;
  DELETE FROM wh_messages m
  USING unnest(v_queues, v_stream_ids, v_heads, v_through) AS h(queue, stream_id, head_version, through)
  WHERE m.queue = h.queue AND m.stream_id = h.stream_id AND m.version > h.head_version AND m.version <= h.through;
  PERFORM remove_drained_streams(v_queues, v_stream_ids, v_through);

  UPDATE wh_active_streams s
  SET head_version = h.through, error = NULL, moved_at = p_as_of,
    -- The rest of a run stays leased, and its next message is being tried.
    attempts = CASE WHEN h.through < s.leased_through THEN 1 ELSE 0 END,
    ready_at = CASE WHEN h.through < s.leased_through THEN s.ready_at ELSE p_as_of END,
    instance_id = CASE WHEN h.through < s.leased_through THEN s.instance_id END,
    lease_expiry = CASE WHEN h.through < s.leased_through THEN s.lease_expiry END,
    lease_token = CASE WHEN h.through < s.leased_through THEN s.lease_token END,
    leased_through = CASE WHEN h.through < s.leased_through THEN s.leased_through END
  FROM unnest(v_queues, v_stream_ids, v_through) AS h(queue, stream_id, through)
  WHERE s.queue = h.queue AND s.stream_id = h.stream_id;

  IF cardinality(v_places) = cardinality(p_stream_ids) THEN
    RETURN '{}';
  END IF;
  RETURN ARRAY(SELECT place FROM generate_subscripts(p_stream_ids, 1) AS place WHERE place <> ALL (v_places));
END;
$$;
