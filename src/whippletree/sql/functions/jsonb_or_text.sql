-- JSON as jsonb. What only json can hold, such as a lone surrogate or a number of a million digits, becomes a JSON string of
-- the same letters, so that one such message does not keep the others from being handed out.
CREATE OR REPLACE FUNCTION jsonb_or_text(p_json json)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
  RETURN p_json::text::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  RETURN to_jsonb(p_json::text);
END;
$$;
