-- The advisory lock's key for a name, distinct per schema: two services in one database do not exclude each other. In
-- plpgsql, as everything that a poll calls: see pick_streams.
CREATE OR REPLACE FUNCTION lock_key(p_name text)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN ('x' || left(md5(current_schema() || ':' || p_name), 16))::bit(64)::bigint;
END;
$$;
