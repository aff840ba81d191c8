-- Ends an instance's membership: what it still holds is free at once. Silent when it is not a member.
CREATE OR REPLACE FUNCTION leave(p_instance_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  -- Before its row: whoever is settling partitions wants both.
  SELECT pg_advisory_xact_lock(lock_key('membership'));
  DELETE FROM wh_service_instances WHERE instance_id = p_instance_id;
  SELECT free_instances(ARRAY[p_instance_id], p_as_of);
$$;
