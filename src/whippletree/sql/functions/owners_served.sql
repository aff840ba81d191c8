-- In whose partitions the instance may claim from a queue: its own, and those of instances that do not work this queue.
CREATE OR REPLACE FUNCTION owners_served(p_instance_id uuid, p_queue text)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN p_instance_id || ARRAY(
    SELECT i.instance_id FROM wh_service_instances i
    WHERE i.instance_id <> p_instance_id AND NOT works_queue(i.queues, p_queue));
END;
$$;
