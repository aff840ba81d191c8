-- The rebuilds that follow the feed, of the perspectives named.
CREATE OR REPLACE FUNCTION feed_rebuilds(p_perspective_names text[])
RETURNS TABLE (perspective_name text, generation integer)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT p.perspective_name, p.building_generation FROM wh_perspectives p
  WHERE p.perspective_name = ANY (p_perspective_names) AND p.key_type = 'text' AND p.building_generation IS NOT NULL;
$$;
