-- The list itself, or an error that names it: a caller who sends something else is told before anything is written.
CREATE OR REPLACE FUNCTION require_array(p_name text, p_elements jsonb)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  IF jsonb_typeof(p_elements) <> 'array' THEN
    RAISE EXCEPTION '% must be a JSON array, not %', p_name, jsonb_typeof(p_elements) USING ERRCODE = 'WH004';
  END IF;
  RETURN p_elements;
END;
$$;
