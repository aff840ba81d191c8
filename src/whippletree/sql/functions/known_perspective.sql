-- A perspective whose rows can be built again, for those who change which generation is what: one of them at a time.
CREATE OR REPLACE FUNCTION known_perspective(p_perspective_name text)
RETURNS wh_perspectives
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_known wh_perspectives;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_key('rebuild:' || p_perspective_name));
  SELECT * INTO v_known FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no perspective of the name % keeps rows', p_perspective_name
      USING ERRCODE = 'WH006', HINT = 'One that writes its own tables has to say which: @app.perspective(tables=["…"]).';
  END IF;
  RETURN v_known;
END;
$$;
