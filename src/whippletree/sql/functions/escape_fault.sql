-- What is wrong with the escaped characters of a payload; NULL when nothing is. json takes any, jsonb only characters.
CREATE OR REPLACE FUNCTION escape_fault(p_payload json)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  PERFORM p_payload::text::jsonb;
  RETURN NULL;
EXCEPTION
  WHEN untranslatable_character THEN
    RETURN 'payload contains the character NUL (\u0000), which text cannot hold';
  WHEN invalid_text_representation THEN
    RETURN 'payload contains a lone surrogate, which is not a character';
  -- Nothing that an escape could cause.
  WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END;
$$;
