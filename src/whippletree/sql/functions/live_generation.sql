-- The generation of a perspective's rows that readers see; 1 for one that has no rows of its own.
CREATE OR REPLACE FUNCTION live_generation(p_perspective_name text)
RETURNS integer
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT COALESCE((SELECT live_generation FROM wh_perspectives WHERE perspective_name = p_perspective_name), 1);
$$;
