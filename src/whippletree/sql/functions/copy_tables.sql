-- Makes empty copies of the tables that a perspective writes by its own SQL, for a generation of its own.
CREATE OR REPLACE FUNCTION copy_tables(p_known wh_perspectives, p_generation integer)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_schema text := generation_schema(p_known.perspective_name, p_generation);
  v_table record;
BEGIN
  PERFORM require_plain_table(t) FROM unnest(p_known.tables) AS t;
  PERFORM make_generation_schema(p_known.perspective_name, p_generation);
  FOR v_table IN
    SELECT t.name, format('%I.%I', v_schema, c.relname) AS copy, c.relacl AS acl, pg_get_userbyid(c.relowner) AS owner
    FROM unnest(p_known.tables) AS t(name) JOIN pg_class c ON c.oid = to_regclass(t.name)
  LOOP
    EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL)', v_table.copy, v_table.name);
    PERFORM grant_again(v_table.acl, v_table.copy);
    IF v_table.owner <> current_user THEN
      EXECUTE format('ALTER TABLE %s OWNER TO %I', v_table.copy, v_table.owner);
    END IF;
  END LOOP;
END;
$$;
