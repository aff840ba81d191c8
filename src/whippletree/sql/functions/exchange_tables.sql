-- Puts the tables of a generation in the place of the live ones, which go to the schema of theirs.
CREATE OR REPLACE FUNCTION exchange_tables(p_known wh_perspectives, p_generation integer)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_from text := generation_schema(p_known.perspective_name, p_generation);
  v_to text := generation_schema(p_known.perspective_name, p_known.live_generation);
  v_table record;
BEGIN
  PERFORM make_generation_schema(p_known.perspective_name, p_known.live_generation);
  FOR v_table IN
    SELECT t.name, c.relname, n.nspname FROM unnest(p_known.tables) AS t(name)
    JOIN pg_class c ON c.oid = to_regclass(t.name) JOIN pg_namespace n ON n.oid = c.relnamespace
    ORDER BY t.name
  LOOP
    PERFORM require_plain_table(v_table.name);
    IF to_regclass(format('%I.%I', v_from, v_table.relname)) IS NULL THEN
      RAISE EXCEPTION 'generation % of % has no table %', p_generation, p_known.perspective_name, v_table.relname
        USING ERRCODE = 'WH002', HINT = 'It was not declared when that generation was made; abandon it and rebuild again.';
    END IF;
    EXECUTE format('ALTER TABLE %s SET SCHEMA %I', v_table.name, v_to);
    EXECUTE format('ALTER TABLE %I.%I SET SCHEMA %I', v_from, v_table.relname, v_table.nspname);
  END LOOP;
  PERFORM drop_tables(p_known.perspective_name, p_generation);
END;
$$;
