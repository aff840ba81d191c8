-- Makes the rows of a perspective, or adds new columns and indexes to them. Doing it again changes nothing and waits for
-- nobody; any number of instances may do it at once. A column that an older definition had is kept. What cannot be changed
-- in place is refused: it needs a rebuild. Returns the live generation.
CREATE OR REPLACE FUNCTION register_perspective_rows(
  p_perspective_name text, p_key_type text, p_columns jsonb, p_indexes jsonb)
RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_known wh_perspectives;
  v_changed text;
BEGIN
  SELECT * INTO v_known FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  IF FOUND AND v_known.key_type = p_key_type AND p_columns <@ v_known.columns
    AND has_indexes(rows_table(p_perspective_name, v_known.live_generation), p_indexes) THEN
    RETURN v_known.live_generation;
  END IF;
  PERFORM require_columns(p_columns);
  -- Folds hold it shared, so nobody writes while the table changes.
  PERFORM pg_advisory_xact_lock(lock_key('perspective:' || p_perspective_name));
  INSERT INTO wh_perspectives (perspective_name, key_type, columns)
  VALUES (p_perspective_name, p_key_type, p_columns)
  ON CONFLICT DO NOTHING;
  SELECT * INTO STRICT v_known FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  SELECT string_agg(c.key, ', ' ORDER BY c.key) INTO v_changed
  FROM jsonb_each(p_columns) c WHERE v_known.columns -> c.key <> c.value;
  IF v_known.key_type <> p_key_type OR v_changed IS NOT NULL THEN
    RAISE EXCEPTION 'perspective % has rows with another %', p_perspective_name,
      CASE WHEN v_known.key_type <> p_key_type THEN 'kind of key' ELSE 'definition of column ' || v_changed END
      USING ERRCODE = 'WH002', HINT = 'Give the column another name, or rebuild the perspective under its new definition.';
  END IF;
  -- All that readers may come to see, so that a swap or its undo takes no column away from them.
  PERFORM make_rows_table(p_perspective_name, g, p_key_type, p_columns, p_indexes)
  FROM unnest(ARRAY[v_known.live_generation, v_known.building_generation, v_known.previous_generation]) g WHERE g IS NOT NULL;
  UPDATE wh_perspectives SET columns = columns || p_columns WHERE perspective_name = p_perspective_name;
  PERFORM show_live_rows(p_perspective_name);
  RETURN v_known.live_generation;
END;
$$;
