-- Returns once no call of the instance is under way, so that what its lost calls did is final: it ends the server
-- processes that the instance lost its connection to, even one that has not begun yet, and waits for any other.
-- Process ids that a pooler made up name nobody, and are ignored.
CREATE OR REPLACE FUNCTION end_lost_calls(p_instance_id uuid, p_process_ids integer[])
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM pg_terminate_backend(a.pid, 5000)
  FROM pg_stat_activity a
  WHERE a.pid = ANY (p_process_ids) AND a.pid <> pg_backend_pid() AND a.datname = current_database()
    AND a.usename = session_user;
  PERFORM pg_advisory_xact_lock(lock_key('work:' || p_instance_id));
END;
$$;
