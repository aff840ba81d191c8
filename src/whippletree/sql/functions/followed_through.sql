-- The number of the last event that the live rows of a perspective which chooses its keys have; NULL when nobody has ever
-- followed for it.
CREATE OR REPLACE FUNCTION followed_through(p_perspective_name text)
RETURNS bigint
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT s.checkpoint FROM wh_subscribers s WHERE s.subscriber_name = 'perspective/' || p_perspective_name;
$$;
