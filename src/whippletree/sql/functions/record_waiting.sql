-- Notes whether the instance has nothing to do and listens, so that storers know whom to wake. Writes only a change.
CREATE OR REPLACE FUNCTION record_waiting(p_instance_id uuid, p_waiting boolean)
RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  UPDATE wh_service_instances SET waiting = p_waiting WHERE instance_id = p_instance_id AND waiting <> p_waiting;
$$;
