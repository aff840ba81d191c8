-- A place in a line as people say it: first, second, third, then a number.
CREATE OR REPLACE FUNCTION spoken_place(p_place bigint)
RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT COALESCE((ARRAY['first', 'second', 'third', 'fourth', 'fifth'])[p_place], 'number ' || p_place);
$$;
