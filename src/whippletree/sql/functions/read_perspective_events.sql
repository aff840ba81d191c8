-- The events that a perspective has before it in each of the given streams, after a version and up to another. Events of
-- other types are left out. With p_context also what stands around each event, which few perspectives ask for; the
-- metadata, which names the trace to follow, always.
CREATE OR REPLACE FUNCTION read_perspective_events(
  p_queue text, p_stream_ids uuid[], p_after bigint[], p_through bigint[], p_context boolean)
RETURNS TABLE (
  place integer, version bigint, event_type text, shape integer, payload json, event_id uuid, metadata json,
  correlation_id uuid, causation_id uuid, created_at timestamptz)
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_types text[] := ARRAY(SELECT t.event_type FROM wh_event_types t WHERE p_queue = ANY (t.queues));
BEGIN
  IF p_context THEN
    RETURN QUERY
    SELECT r.place::integer, e.version, e.event_type, e.shape, e.payload, e.event_id, e.metadata, e.correlation_id,
      e.causation_id, e.created_at
    FROM unnest(p_stream_ids, p_after, p_through) WITH ORDINALITY AS r(stream_id, after, through, place)
    JOIN wh_event_store e ON e.stream_id = r.stream_id AND e.version > r.after AND e.version <= r.through
    WHERE e.event_type = ANY (v_types)
    ORDER BY r.place, e.version;
  ELSE
    RETURN QUERY
    SELECT r.place::integer, e.version, e.event_type, e.shape, e.payload, NULL::uuid, e.metadata, NULL::uuid,
      NULL::uuid, NULL::timestamptz
    FROM unnest(p_stream_ids, p_after, p_through) WITH ORDINALITY AS r(stream_id, after, through, place)
    JOIN wh_event_store e ON e.stream_id = r.stream_id AND e.version > r.after AND e.version <= r.through
    WHERE e.event_type = ANY (v_types)
    ORDER BY r.place, e.version;
  END IF;
END;
$$;
