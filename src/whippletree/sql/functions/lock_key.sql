-- The advisory lock's key for a name, distinct per schema: two services in one database do not exclude each other.
CREATE OR REPLACE FUNCTION lock_key(p_name text)
RETURNS bigint
LANGUAGE sql STABLE STRICT
SET search_path FROM CURRENT
AS $$
  SELECT ('x' || left(md5(current_schema() || ':' || p_name), 16))::bit(64)::bigint;
$$;
