-- Makes an instance finish what it has and take no more, or lets it work again. False when it is not a member.
CREATE OR REPLACE FUNCTION drain_instance(p_instance_id uuid, p_draining boolean DEFAULT true)
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- Before its row: whoever is settling partitions wants both.
  PERFORM pg_advisory_xact_lock(lock_key('membership'));
  UPDATE wh_service_instances SET draining = p_draining, settled_for = NULL, waiting = false
  WHERE instance_id = p_instance_id;
  IF FOUND THEN
    PERFORM pg_notify(wake_channel(), '');
    RETURN true;
  END IF;
  RETURN false;
END;
$$;
