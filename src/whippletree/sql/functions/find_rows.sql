-- The live rows of a perspective whose columns have the given values, in the order of their keys. NULL finds rows without
-- a value; no columns find all rows. p_columns says how the caller defines these columns. p_after continues behind a key.
CREATE OR REPLACE FUNCTION find_rows(
  p_perspective_name text, p_values jsonb DEFAULT '{}', p_columns jsonb DEFAULT '{}', p_after text DEFAULT NULL,
  p_limit bigint DEFAULT NULL)
RETURNS TABLE (key text, "row" jsonb, version bigint, updated_at timestamptz)
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_type text;
  v_columns jsonb;
  v_other text := columns_to_rebuild(p_perspective_name, p_columns);
  v_conditions text;
BEGIN
  IF v_other IS NOT NULL THEN
    RAISE EXCEPTION 'the rows of % have column % by another definition', p_perspective_name, v_other USING ERRCODE = 'WH002',
      HINT = format('Rebuild them, `whippletree perspectives rebuild %s`, and swap.', p_perspective_name);
  END IF;
  SELECT p.key_type, g.columns INTO STRICT v_type, v_columns
  FROM wh_perspectives p JOIN wh_perspective_generations g USING (perspective_name)
  WHERE p.perspective_name = p_perspective_name AND g.generation = p.live_generation;
  SELECT string_agg(CASE WHEN jsonb_typeof(v.value) = 'null' THEN format(' AND t.%I IS NULL', v.key)
      ELSE format(' AND t.%I = ($1 ->> %L)::%s', v.key, v.key, v_columns -> v.key ->> 'type') END, '')
  INTO v_conditions FROM jsonb_each(p_values) v WHERE v_columns ? v.key;
  RETURN QUERY EXECUTE format('SELECT t.key::text, t.row, t.version, t.updated_at FROM %I t
    WHERE ($2 IS NULL OR t.key > $2::%s)%s ORDER BY t.key LIMIT $3',
    rows_table(p_perspective_name, NULL), v_type, v_conditions) USING p_values, p_after, p_limit;
END;
$$;
