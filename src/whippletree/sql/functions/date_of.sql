-- A day from its ISO text. Immutable, because no setting of a session changes what it reads.
CREATE OR REPLACE FUNCTION date_of(p_text text)
RETURNS date
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET datestyle = 'ISO, YMD'
AS $$
BEGIN
  RETURN p_text::date;
END;
$$;
