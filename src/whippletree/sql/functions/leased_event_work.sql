-- The work of leased streams as rows of an answer: for a receptor its events, with their shape in detail; for a perspective
-- each stream with its checkpoint (version, and message_id of that event), to be folded up to the version in detail.
CREATE OR REPLACE FUNCTION leased_event_work(
  p_queue text, p_stream_ids uuid[], p_head_versions bigint[], p_through bigint[], p_attempts integer[],
  p_lease_tokens bigint[])
RETURNS SETOF wh_work
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  IF p_queue LIKE 'receptor/%' THEN
    RETURN QUERY
    SELECT 'claimed', p_queue, NULL::integer, e.stream_id, e.version, e.event_id, e.event_type, NULL::text, e.payload,
      e.metadata, e.correlation_id, e.causation_id, date_part('epoch', e.created_at), r.attempts, r.lease_token,
      e.shape::text
    -- The name goes with each stream: as a constant it would let a planner that believes the log to be small read all of
    -- the receptor's.
    FROM unnest(array_fill(substr(p_queue, 10), ARRAY[cardinality(p_stream_ids)]), p_stream_ids, p_head_versions,
      p_through, p_attempts, p_lease_tokens) AS r(receptor_name, stream_id, head_version, through, attempts, lease_token)
    CROSS JOIN LATERAL (
      SELECT n.version FROM wh_receptor_log n
      WHERE n.receptor_name = r.receptor_name AND n.stream_id = r.stream_id
        AND n.version > r.head_version AND n.version <= r.through
      ORDER BY n.version
    ) l
    JOIN wh_event_store e ON e.stream_id = r.stream_id AND e.version = l.version;
  ELSE
    RETURN QUERY
    SELECT 'claimed', p_queue, NULL::integer, r.stream_id, r.head_version, e.event_id, NULL::text, NULL::text, NULL::json,
      NULL::json, NULL::uuid, NULL::uuid, NULL::double precision, r.attempts, r.lease_token, r.through::text
    FROM unnest(p_stream_ids, p_head_versions, p_through, p_attempts, p_lease_tokens)
      AS r(stream_id, head_version, through, attempts, lease_token)
    LEFT JOIN wh_event_store e ON e.stream_id = r.stream_id AND e.version = r.head_version;
  END IF;
END;
$$;
