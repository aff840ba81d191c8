-- The parts into which the rebuild of a perspective that follows the feed is divided at present; none when its rows have
-- everything that was there when it began. The parts of a stage stay until the last of them is finished.
CREATE OR REPLACE FUNCTION rebuild_parts(p_perspective_name text, p_generation integer)
RETURNS SETOF wh_subscribers
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT s.* FROM wh_subscribers s
  WHERE s.through IS NOT NULL
    AND starts_with(s.subscriber_name, 'perspective/' || p_perspective_name || '@' || p_generation || '/');
$$;
