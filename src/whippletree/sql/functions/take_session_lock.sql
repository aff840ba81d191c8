-- Takes the session lock of the instance on this connection, which keeps it until it closes; says whether it has it.
-- A former session of the same instance may live on, because the server has not noticed that its client is gone: end it.
CREATE OR REPLACE FUNCTION take_session_lock(p_instance_id uuid, p_former_process_id integer)
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_key bigint := session_lock_key(p_instance_id);
BEGIN
  IF pg_try_advisory_lock(v_key) THEN
    RETURN true;
  END IF;
  PERFORM pg_terminate_backend(l.pid, 1000)
  FROM pg_locks l
  WHERE l.locktype = 'advisory' AND l.pid = p_former_process_id AND l.objsubid = 1
    AND ((l.classid::bigint << 32) | l.objid::bigint) = v_key;
  RETURN pg_try_advisory_lock(v_key);
END;
$$;
