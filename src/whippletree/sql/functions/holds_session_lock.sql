-- Whether this very connection holds the session lock of the instance. A pooler may have put us on another one.
CREATE OR REPLACE FUNCTION holds_session_lock(p_instance_id uuid)
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_backend_pid() AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((l.classid::bigint << 32) | l.objid::bigint) = session_lock_key(p_instance_id));
$$;
