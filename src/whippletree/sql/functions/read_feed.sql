-- Events after a number of the feed and up to another, in order. Of some types only, when types or patterns are named;
-- a pattern means the types that it matches.
CREATE OR REPLACE FUNCTION read_feed(
  p_after bigint, p_through bigint, p_event_types text[] DEFAULT NULL, p_patterns text[] DEFAULT NULL,
  p_limit bigint DEFAULT NULL)
RETURNS TABLE (
  number bigint, stream_id uuid, version bigint, event_id uuid, event_type text, shape integer, payload json,
  metadata json, correlation_id uuid, causation_id uuid, created_at timestamptz)
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  v_event_types text[] := p_event_types;
BEGIN
  IF p_patterns IS NOT NULL THEN
    v_event_types := COALESCE(p_event_types, '{}') || ARRAY(
      SELECT t.event_type FROM wh_event_types t, unnest(p_patterns) AS p WHERE type_matches(p, t.event_type));
  END IF;
  RETURN QUERY
  SELECT s.number, e.stream_id, e.version, e.event_id, e.event_type, e.shape, e.payload, e.metadata, e.correlation_id,
    e.causation_id, e.created_at
  FROM wh_event_sequence s
  JOIN wh_event_store e ON e.stream_id = s.stream_id AND e.version = s.version
  WHERE s.number > p_after AND s.number <= p_through
    AND (v_event_types IS NULL OR e.event_type = ANY (v_event_types))
  ORDER BY s.number
  LIMIT p_limit;
END;
$$;
