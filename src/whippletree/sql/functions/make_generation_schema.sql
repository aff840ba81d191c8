-- Makes the schema for the tables of a generation that is not live. Whoever may use the tables may use them there.
CREATE OR REPLACE FUNCTION make_generation_schema(p_perspective_name text, p_generation integer)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_schema text := generation_schema(p_perspective_name, p_generation);
BEGIN
  EXECUTE format('CREATE SCHEMA %I', v_schema);
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO PUBLIC', v_schema);
  EXECUTE format('COMMENT ON SCHEMA %I IS %L', v_schema,
    format('Tables of generation %s of the perspective %s.', p_generation, p_perspective_name));
END;
$$;
