-- Joins the instance on its first call; afterwards writes its heartbeat, at most once a second, so that an idle poll
-- writes nothing. What it works only ever grows. p_session_locked: the instance holds its session lock, see session_lock_key.
CREATE OR REPLACE FUNCTION record_heartbeat(
  p_instance_id uuid, p_service_name text, p_host_name text, p_process_id integer, p_metadata jsonb,
  p_session_locked boolean, p_as_of timestamptz, p_queues text[] DEFAULT '{}')
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_last timestamptz;
  v_session_locked boolean;
  v_queues text[];
BEGIN
  SELECT last_heartbeat_at, session_locked, queues INTO v_last, v_session_locked, v_queues
  FROM wh_service_instances WHERE instance_id = p_instance_id;
  IF NOT FOUND THEN
    PERFORM require_membership(p_instance_id, p_service_name, p_host_name, p_process_id);
    INSERT INTO wh_service_instances
      (instance_id, service_name, host_name, process_id, metadata, started_at, last_heartbeat_at, session_locked,
       queues)
    VALUES (p_instance_id, p_service_name, p_host_name, p_process_id, COALESCE(p_metadata, '{}'), p_as_of, p_as_of,
      p_session_locked, p_queues)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      PERFORM require_membership(p_instance_id, p_service_name, p_host_name, p_process_id);
    END IF;
  ELSIF p_as_of NOT BETWEEN v_last AND v_last + interval '1 second' OR v_session_locked <> p_session_locked
    OR NOT p_queues <@ v_queues THEN
    IF v_last > p_as_of + interval '1 minute' THEN
      PERFORM follow_clock(p_as_of);
    END IF;
    UPDATE wh_service_instances
    SET last_heartbeat_at = p_as_of, session_locked = p_session_locked,
      queues = ARRAY(SELECT unnest(v_queues) UNION SELECT unnest(p_queues))
    WHERE instance_id = p_instance_id;
    IF NOT FOUND THEN
      PERFORM require_membership(p_instance_id, p_service_name, p_host_name, p_process_id);
    END IF;
  END IF;
END;
$$;
