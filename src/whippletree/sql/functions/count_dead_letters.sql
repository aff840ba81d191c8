-- How many messages were given up.
CREATE OR REPLACE FUNCTION count_dead_letters()
RETURNS bigint
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT count(*) FROM wh_dead_letters;
$$;
