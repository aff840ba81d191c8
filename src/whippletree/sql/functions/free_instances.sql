-- Frees the partitions and leases of instances that are gone. Their streams are orphaned: anybody's, at once, and first,
-- as they were when they were claimed. That may lie behind the horizon of a survivor, so all of them are told to look
-- at everything again, but for one that has not committed its own poll yet: it does so by itself after a while. A row
-- that somebody is just reporting on is skipped; its lease runs out by itself.
CREATE OR REPLACE FUNCTION free_instances(p_instance_ids uuid[], p_as_of timestamptz)
RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  UPDATE wh_partitions SET instance_id = NULL WHERE instance_id = ANY (p_instance_ids);
  WITH orphan AS MATERIALIZED (
    SELECT s.queue, s.stream_id FROM wh_active_streams s
    WHERE s.instance_id = ANY (p_instance_ids)
    FOR NO KEY UPDATE SKIP LOCKED
  ), freed AS (
    UPDATE wh_active_streams s
    SET lease_expiry = least(s.lease_expiry, p_as_of), ready_at = least(s.ready_since, s.lease_expiry, p_as_of)
    FROM orphan o
    WHERE s.stream_id = ANY (ARRAY[o.stream_id]) AND s.queue = o.queue
    RETURNING s.stream_id
  )
  UPDATE wh_service_instances i SET partitions_version = i.partitions_version + 1
  FROM (SELECT instance_id FROM wh_service_instances WHERE EXISTS (SELECT FROM freed) FOR NO KEY UPDATE SKIP LOCKED) reachable
  WHERE i.instance_id = reachable.instance_id;
  SELECT wake_waiting_instances();
$$;
