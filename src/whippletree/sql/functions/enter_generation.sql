-- Lets the caller write tables of a perspective until its transaction ends: a swap waits. Says where the tables of the
-- generation are: in a schema to be put before the search path, or where they always are ('') when it is live. NULL when
-- the generation is no longer worked on, because the tables were swapped.
CREATE OR REPLACE FUNCTION enter_generation(p_perspective_name text, p_generation integer)
RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(lock_key('perspective:' || p_perspective_name));
  RETURN (SELECT CASE p_generation WHEN p.live_generation THEN ''
      WHEN p.building_generation THEN quote_ident(generation_schema(p_perspective_name, p_generation)) END
    FROM wh_perspectives p WHERE p.perspective_name = p_perspective_name);
END;
$$;
