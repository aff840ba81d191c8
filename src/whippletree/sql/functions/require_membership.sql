-- Refuses an instance that the others removed, and an id that another process already uses.
CREATE OR REPLACE FUNCTION require_membership(
  p_instance_id uuid, p_service_name text, p_host_name text, p_process_id integer)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_other wh_service_instances;
  v_eviction wh_evicted_instances;
BEGIN
  PERFORM FROM wh_service_instances
  WHERE instance_id = p_instance_id AND service_name = p_service_name AND host_name = p_host_name
    AND process_id = p_process_id;
  IF FOUND THEN
    RETURN;
  END IF;
  SELECT * INTO v_other FROM wh_service_instances WHERE instance_id = p_instance_id;
  IF FOUND THEN
    RAISE EXCEPTION 'instance id % is in use by % on %, process %', p_instance_id, v_other.service_name,
      v_other.host_name, v_other.process_id
      USING ERRCODE = 'WH002', HINT = 'Give every process an id of its own, made after it was started or forked.';
  END IF;
  SELECT * INTO v_eviction FROM wh_evicted_instances WHERE instance_id = p_instance_id;
  IF FOUND THEN
    RAISE EXCEPTION 'instance % was evicted at %: %', p_instance_id, v_eviction.evicted_at, v_eviction.reason
      USING ERRCODE = 'WH001', HINT = 'Drop all work in hand and join again under a new id.';
  END IF;
END;
$$;
