-- The instances that may claim a ready stream: they work its queue, and it is open to them. One that drains, or
-- is gone, takes nothing.
CREATE OR REPLACE FUNCTION claimants(p_queue text, p_partition_number integer, p_holder uuid, p_as_of timestamptz)
RETURNS SETOF uuid
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT i.instance_id FROM wh_service_instances i
  WHERE works_queue(i.queues, p_queue) AND NOT i.draining AND NOT is_gone(i, p_as_of)
    AND is_open_to(owners_served(i.instance_id, p_queue), p_holder,
      (SELECT p.instance_id FROM wh_partitions p WHERE p.partition_number = p_partition_number));
$$;
