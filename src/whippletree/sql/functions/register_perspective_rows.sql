-- Makes the rows of a perspective, or adds new columns and indexes to them. Doing it again changes nothing and waits for
-- nobody; any number of instances may do it at once. A column that an older definition had is kept. One that is defined
-- otherwise now is so in the next generation; which ones these are is returned, NULL for none.
CREATE OR REPLACE FUNCTION register_perspective_rows(
  p_perspective_name text, p_key_type text, p_columns jsonb, p_indexes jsonb, p_patterns text[] DEFAULT '{}')
RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_known wh_perspectives;
BEGIN
  SELECT * INTO v_known FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  IF FOUND AND v_known.key_type = p_key_type AND p_columns <@ v_known.columns AND v_known.patterns = p_patterns
    AND has_indexes(rows_table(p_perspective_name, v_known.live_generation), p_indexes) THEN
    RETURN columns_to_rebuild(p_perspective_name, p_columns);
  END IF;
  PERFORM require_columns(p_columns);
  PERFORM require_patterns(p_patterns);
  PERFORM pg_advisory_xact_lock(lock_key('rebuild:' || p_perspective_name));
  -- Folds hold it shared, so nobody writes while the table changes.
  PERFORM pg_advisory_xact_lock(lock_key('perspective:' || p_perspective_name));
  INSERT INTO wh_perspectives (perspective_name, key_type, columns)
  VALUES (p_perspective_name, p_key_type, p_columns)
  ON CONFLICT DO NOTHING;
  SELECT * INTO STRICT v_known FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  IF v_known.key_type <> p_key_type THEN
    RAISE EXCEPTION 'perspective % has rows with another kind of key', p_perspective_name
      USING ERRCODE = 'WH002', HINT = 'Give the perspective another name: it is filled from the first event on.';
  END IF;
  INSERT INTO wh_perspective_generations VALUES (p_perspective_name, v_known.live_generation, p_columns)
  ON CONFLICT DO NOTHING;
  -- All that readers may come to see, so that a swap or its undo takes no column away from them.
  PERFORM make_rows_table(p_perspective_name, g, p_key_type, p_columns, p_indexes)
  FROM unnest(ARRAY[v_known.live_generation, v_known.building_generation, v_known.previous_generation]) g WHERE g IS NOT NULL;
  UPDATE wh_perspective_generations SET columns = p_columns || columns
  WHERE perspective_name = p_perspective_name
    AND generation IN (v_known.live_generation, v_known.building_generation, v_known.previous_generation);
  UPDATE wh_perspectives SET columns = columns || p_columns, patterns = p_patterns
  WHERE perspective_name = p_perspective_name;
  PERFORM show_rows(v_known, v_known.live_generation);
  RETURN columns_to_rebuild(p_perspective_name, p_columns);
END;
$$;
