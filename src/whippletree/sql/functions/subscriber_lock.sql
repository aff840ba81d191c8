-- The two halves of the key of a subscriber's session lock. The schema belongs to it, because two services in one
-- database may have subscribers of one name.
CREATE OR REPLACE FUNCTION subscriber_lock(p_name text)
RETURNS integer[]
LANGUAGE sql STABLE STRICT
SET search_path FROM CURRENT
AS $$
  SELECT ARRAY[('x' || substr(h, 1, 8))::bit(32)::integer, ('x' || substr(h, 9, 8))::bit(32)::integer]
  FROM md5(current_schema() || ':' || p_name) AS h;
$$;
