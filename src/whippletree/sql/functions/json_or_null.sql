-- The JSON that an element holds, either as it is or encoded in a string; NULL when the string is not JSON.
CREATE OR REPLACE FUNCTION json_or_null(p_value jsonb)
RETURNS json
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
  -- The cast stands here, because what RETURN converts by itself is converted outside this block.
  RETURN (CASE jsonb_typeof(p_value) WHEN 'string' THEN p_value #>> '{}' ELSE p_value::text END)::json;
EXCEPTION WHEN invalid_text_representation OR untranslatable_character OR statement_too_complex THEN
  RETURN NULL;
END;
$$;
