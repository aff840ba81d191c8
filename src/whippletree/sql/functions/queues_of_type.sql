-- The queues that get work from an event of a type.
CREATE OR REPLACE FUNCTION queues_of_type(p_event_type text)
RETURNS text[]
LANGUAGE sql STABLE STRICT
SET search_path FROM CURRENT
AS $$
  SELECT ARRAY(
    SELECT 'perspective/' || m.perspective_name FROM wh_perspective_mappings m
    WHERE type_matches(m.event_type_pattern, p_event_type)
    UNION
    SELECT 'perspective/' || m.perspective_name || '@' || p.building_generation
    FROM wh_perspective_mappings m JOIN wh_perspectives p ON p.perspective_name = m.perspective_name
    WHERE p.building_generation IS NOT NULL AND type_matches(m.event_type_pattern, p_event_type)
    UNION
    SELECT 'receptor/' || m.receptor_name FROM wh_receptor_mappings m
    WHERE type_matches(m.event_type_pattern, p_event_type)
    ORDER BY 1);
$$;
