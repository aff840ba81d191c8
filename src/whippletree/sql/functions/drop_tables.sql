-- Removes the tables of a generation that is not live, and their schema.
CREATE OR REPLACE FUNCTION drop_tables(p_perspective_name text, p_generation integer)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_schema text := generation_schema(p_perspective_name, p_generation);
  v_table regclass;
BEGIN
  FOR v_table IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident(v_schema)) AND c.relkind = 'r'
  LOOP
    EXECUTE format('DROP TABLE %s', v_table);
  END LOOP;
  EXECUTE format('DROP SCHEMA %I', v_schema);
END;
$$;
