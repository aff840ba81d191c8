-- Who owns which partition, with the heartbeat that makes it valid.
CREATE OR REPLACE VIEW wh_partition_assignments AS
SELECT p.partition_number, p.instance_id, i.service_name, i.last_heartbeat_at AS last_heartbeat
FROM wh_partitions p
JOIN wh_service_instances i ON i.instance_id = p.instance_id;
