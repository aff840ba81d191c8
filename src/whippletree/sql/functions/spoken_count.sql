-- So many of a thing as people say it: 1 stream, 2 streams.
CREATE OR REPLACE FUNCTION spoken_count(p_count bigint, p_thing text)
RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT p_count || ' ' || p_thing || CASE WHEN p_count = 1 THEN '' ELSE 's' END;
$$;
