-- Keeps up what the instances know of each other: the instance's heartbeat, who has died, whose the partitions are.
-- Whoever names no list of queues, and never has, is a producer: no partition is to wait for it. An empty list is that of
-- an instance which works without claiming, such as one that only follows subscribers.
CREATE OR REPLACE FUNCTION keep_membership(
  p_instance_id uuid, p_service_name text, p_host_name text, p_process_id integer, p_metadata jsonb,
  p_session_locked boolean, p_claim_queues text[], p_stale_threshold_seconds double precision,
  p_max_partitions integer, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_as_of timestamptz := COALESCE(p_as_of, clock_timestamp());
BEGIN
  IF p_claim_queues IS NULL THEN
    PERFORM FROM wh_service_instances WHERE instance_id = p_instance_id;
    IF NOT FOUND THEN
      RETURN;
    END IF;
  END IF;
  PERFORM record_heartbeat(p_instance_id, p_service_name, p_host_name, p_process_id, p_metadata, p_session_locked,
    v_as_of, p_claim_queues);
  PERFORM remove_dead_instances(p_instance_id, p_stale_threshold_seconds, v_as_of);
  PERFORM own_partitions(p_instance_id, p_max_partitions, v_as_of);
END;
$$;
