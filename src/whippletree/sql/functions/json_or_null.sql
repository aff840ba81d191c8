-- The JSON that an element holds, either as it is or encoded in a string; NULL when the string is not JSON.
CREATE OR REPLACE FUNCTION json_or_null(p_value jsonb)
RETURNS json
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
  RETURN CASE jsonb_typeof(p_value) WHEN 'string' THEN p_value #>> '{}' ELSE p_value::text END;
EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
  RETURN NULL;
END;
$$;
