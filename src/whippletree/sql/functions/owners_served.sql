-- In whose partitions the instance may claim from a queue: its own, and those of instances that do not work this queue.
-- NULL means everybody's: it has settled as the only one, and there is no need to look up each stream's partition.
CREATE OR REPLACE FUNCTION owners_served(p_instance_id uuid, p_queue text)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT CASE WHEN bool_or(i.instance_id = p_instance_id AND i.settled_for = membership_of(ARRAY[p_instance_id])) THEN NULL
      ELSE p_instance_id || array_agg(i.instance_id) FILTER (WHERE NOT works_queue(i.queues, p_queue)) END
    FROM wh_service_instances i);
END;
$$;
