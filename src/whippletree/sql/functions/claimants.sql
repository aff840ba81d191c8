-- The instances that may claim a ready stream: they work its queue, and its partition is theirs or is served by them.
-- An expired lease is anybody's, and one that drains takes nothing.
CREATE OR REPLACE FUNCTION claimants(p_queue text, p_partition_number integer, p_leased boolean)
RETURNS SETOF uuid
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT i.instance_id FROM wh_service_instances i
  WHERE i.queues && names_of_queue(p_queue) AND NOT i.draining
    AND (p_leased OR (SELECT p.instance_id FROM wh_partitions p WHERE p.partition_number = p_partition_number)
      = ANY (owners_served(i.instance_id, p_queue)));
$$;
