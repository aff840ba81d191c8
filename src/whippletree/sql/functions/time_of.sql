-- A point in time from its ISO text. Immutable, because the text says its offset: no setting of a session changes it.
CREATE OR REPLACE FUNCTION time_of(p_text text)
RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
AS $$
BEGIN
  RETURN p_text::timestamptz;
END;
$$;
