-- Events of one stream, in order: after a version, up to a version or a time, of some types only, forwards or backwards.
CREATE OR REPLACE FUNCTION read_events(
  p_stream_id uuid, p_after bigint DEFAULT 0, p_up_to bigint DEFAULT NULL, p_until timestamptz DEFAULT NULL,
  p_event_types text[] DEFAULT NULL, p_backwards boolean DEFAULT false, p_limit bigint DEFAULT NULL)
RETURNS TABLE (
  stream_id uuid, version bigint, event_id uuid, event_type text, shape integer, payload json, metadata json,
  correlation_id uuid, causation_id uuid, created_at timestamptz)
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
  IF p_backwards THEN
    RETURN QUERY
    SELECT e.stream_id, e.version, e.event_id, e.event_type, e.shape, e.payload, e.metadata, e.correlation_id,
      e.causation_id, e.created_at
    FROM wh_event_store e
    WHERE e.stream_id = p_stream_id AND e.version > p_after AND e.version <= COALESCE(p_up_to, 9223372036854775807)
      AND (p_until IS NULL OR e.created_at <= p_until) AND (p_event_types IS NULL OR e.event_type = ANY (p_event_types))
    ORDER BY e.version DESC
    LIMIT p_limit;
  ELSE
    RETURN QUERY
    SELECT e.stream_id, e.version, e.event_id, e.event_type, e.shape, e.payload, e.metadata, e.correlation_id,
      e.causation_id, e.created_at
    FROM wh_event_store e
    WHERE e.stream_id = p_stream_id AND e.version > p_after AND e.version <= COALESCE(p_up_to, 9223372036854775807)
      AND (p_until IS NULL OR e.created_at <= p_until) AND (p_event_types IS NULL OR e.event_type = ANY (p_event_types))
    ORDER BY e.version
    LIMIT p_limit;
  END IF;
END;
$$;
