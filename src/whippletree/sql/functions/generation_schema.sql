-- The schema that holds the tables of a generation of a perspective which writes by its own SQL, while it is not live.
CREATE OR REPLACE FUNCTION generation_schema(p_perspective_name text, p_generation integer)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  -- Two services in one database may have perspectives of one name.
  SELECT 'wh_' || left(p_perspective_name, 30) || '_' || left(md5(current_schema() || ':' || p_perspective_name), 8)
    || '_g' || p_generation;
$$;
