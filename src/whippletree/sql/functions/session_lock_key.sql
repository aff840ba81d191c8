-- The key of the session-level advisory lock that an instance holds on its dedicated connection while it lives.
CREATE OR REPLACE FUNCTION session_lock_key(p_instance_id uuid)
RETURNS bigint
LANGUAGE sql STABLE STRICT
SET search_path FROM CURRENT
AS $$
  SELECT lock_key('instance:' || p_instance_id);
$$;
