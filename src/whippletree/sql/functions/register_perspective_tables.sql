-- Says which tables a perspective writes by its own SQL, so that they can be built again. Doing it again changes nothing.
CREATE OR REPLACE FUNCTION register_perspective_tables(p_perspective_name text, p_tables text[])
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_known wh_perspectives;
BEGIN
  SELECT * INTO v_known FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  IF FOUND AND v_known.key_type = 'none' AND v_known.tables = p_tables THEN
    RETURN;
  END IF;
  -- The names become part of statements, and of what the owner does when he rebuilds.
  IF EXISTS (
    SELECT FROM unnest(p_tables) AS t LEFT JOIN pg_class c ON c.oid = to_regclass(t)
    LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE t IS DISTINCT FROM quote_ident(n.nspname) || '.' || quote_ident(c.relname) OR n.nspname = current_schema()
      OR NOT has_table_privilege(session_user, c.oid, 'INSERT')
  ) THEN
    RAISE EXCEPTION 'of the tables of %, % one is not there, or not yours to write', p_perspective_name, p_tables
      USING ERRCODE = 'WH002', HINT = 'Name each as schema.table.';
  END IF;
  PERFORM pg_advisory_xact_lock(lock_key('rebuild:' || p_perspective_name));
  INSERT INTO wh_perspectives (perspective_name, key_type, columns, tables)
  VALUES (p_perspective_name, 'none', '{}', p_tables)
  ON CONFLICT (perspective_name) DO UPDATE SET tables = EXCLUDED.tables WHERE wh_perspectives.key_type = 'none';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'perspective % keeps rows by a fold', p_perspective_name
      USING ERRCODE = 'WH002', HINT = 'Give the perspective another name: it is run from the first event on.';
  END IF;
  INSERT INTO wh_perspective_generations VALUES (p_perspective_name, 1, '{}') ON CONFLICT DO NOTHING;
END;
$$;
