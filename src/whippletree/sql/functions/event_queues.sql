-- The queues that a name means: itself, or for perspective/* and receptor/* all that are registered. Whoever works a
-- perspective works its rebuild too, which is a queue of its own: perspective/NAME@GENERATION. One that follows the feed
-- has no queue.
CREATE OR REPLACE FUNCTION event_queues(p_queue text)
RETURNS SETOF text
LANGUAGE plpgsql STABLE STRICT
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT p_queue WHERE p_queue NOT LIKE '%/*'
  UNION
  SELECT 'perspective/' || m.perspective_name FROM wh_perspective_mappings m WHERE p_queue = 'perspective/*'
  UNION
  SELECT 'perspective/' || p.perspective_name || '@' || p.building_generation FROM wh_perspectives p
  WHERE p.building_generation IS NOT NULL AND p.key_type <> 'text'
    AND p_queue IN ('perspective/*', 'perspective/' || p.perspective_name)
  UNION
  SELECT 'receptor/' || m.receptor_name FROM wh_receptor_mappings m WHERE p_queue = 'receptor/*';
END;
$$;
