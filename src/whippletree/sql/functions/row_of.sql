-- The live row of a stream, by its id or its text, or of a key that the perspective chose; NULL when there is none.
CREATE OR REPLACE FUNCTION row_of(p_perspective_name text, p_key text)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_type text := (SELECT key_type FROM wh_perspectives WHERE perspective_name = p_perspective_name);
  v_row jsonb;
BEGIN
  EXECUTE format('SELECT t.row FROM %I t WHERE t.key = %s', rows_table(p_perspective_name, NULL),
    CASE v_type WHEN 'uuid' THEN 'stream_id_of($1)' ELSE '$1' END) INTO v_row USING p_key;
  RETURN v_row;
END;
$$;
