-- Notes whether the instance has nothing to do and listens, so that storers know whom to wake. Writes only a change.
CREATE OR REPLACE FUNCTION record_waiting(p_instance_id uuid, p_waiting boolean)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- SKIP LOCKED, because the claim's lock is held here: another batch of the instance may hold the row and want that lock.
  WITH own AS MATERIALIZED (
    SELECT i.instance_id FROM wh_service_instances i
    WHERE i.instance_id = p_instance_id AND i.waiting <> p_waiting
    FOR NO KEY UPDATE SKIP LOCKED
  )
  UPDATE wh_service_instances i SET waiting = p_waiting FROM own o WHERE i.instance_id = o.instance_id;
END;
$$;
