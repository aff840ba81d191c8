-- In whose partitions the instance may claim from a queue: its own, and those of instances that do not work this queue.
CREATE OR REPLACE FUNCTION owners_served(p_instance_id uuid, p_queue text)
RETURNS uuid[]
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT p_instance_id || ARRAY(
    SELECT i.instance_id FROM wh_service_instances i
    WHERE i.instance_id <> p_instance_id AND NOT i.queues && names_of_queue(p_queue));
$$;
