-- Refuses flags that do not exist.
CREATE OR REPLACE FUNCTION require_flags(p_flags text[])
RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  IF (p_flags <@ ARRAY['skip_claim', 'debug_mode']) IS NOT TRUE THEN
    RAISE EXCEPTION 'unknown flag in %: there are skip_claim and debug_mode', p_flags USING ERRCODE = 'WH004';
  END IF;
END;
$$;
