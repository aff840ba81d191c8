-- The time that a text spells; NULL for anything else.
CREATE OR REPLACE FUNCTION time_or_null(p_text text)
RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
  RETURN p_text::timestamptz;
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END;
$$;
