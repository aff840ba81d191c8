-- Whether a payload is nested more than 64 deep, as no reader can be expected to follow.
CREATE OR REPLACE FUNCTION is_too_deep(p_payload json)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  -- Most have fewer brackets than that, and need not be parsed.
  IF length(p_payload::text) - length(translate(p_payload::text, '[{', '')) <= 64 THEN
    RETURN false;
  END IF;
  BEGIN
    RETURN jsonb_path_exists(p_payload::text::jsonb,
      'strict $.**{64 to last} ? (@.type() == "array" || @.type() == "object")');
  EXCEPTION
    WHEN statement_too_complex THEN
      RETURN true;
    -- Nothing that depth could cause.
    WHEN data_exception OR program_limit_exceeded THEN
      RETURN false;
  END;
END;
$$;
