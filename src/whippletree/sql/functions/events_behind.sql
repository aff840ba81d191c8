-- How many events the live rows of a perspective that follows the feed have and its rebuild does not; counted up to a limit.
CREATE OR REPLACE FUNCTION events_behind(p_perspective_name text, p_limit bigint)
RETURNS bigint
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT count(*) FROM (
    SELECT FROM wh_perspectives p
    JOIN wh_subscribers l ON l.subscriber_name = 'perspective/' || p.perspective_name
    JOIN wh_subscribers b ON b.subscriber_name = l.subscriber_name || '@' || p.building_generation
    JOIN wh_event_sequence n ON n.number > b.checkpoint AND n.number <= l.checkpoint
    JOIN wh_event_store e ON e.stream_id = n.stream_id AND e.version = n.version
    -- A checkpoint also moves over events that the perspective does not fold.
    WHERE p.perspective_name = p_perspective_name AND EXISTS (
      SELECT FROM unnest(p.patterns) AS pattern WHERE type_matches(pattern, e.event_type))
    LIMIT p_limit
  ) n;
$$;
