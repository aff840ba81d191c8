-- Whether nothing is to be expected of an instance: its session has ended, or it has been silent for ten minutes. Another
-- one removes it when it polls, by the same witnesses (remove_dead_instances); while none does, its row says that it works.
CREATE OR REPLACE FUNCTION is_gone(p_instance wh_service_instances, p_as_of timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT p_instance.last_heartbeat_at < p_as_of - CASE WHEN p_instance.session_locked AND NOT EXISTS (
    SELECT FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((l.classid::bigint << 32) | l.objid::bigint) = session_lock_key(p_instance.instance_id))
    THEN interval '1.2 seconds' ELSE interval '10 minutes' END;
$$;
