-- Changes the number of partitions of the installation and recomputes the partition of every pending stream.
-- Ownership starts anew at the instances' next poll. Waits until no message is being stored or claimed.
CREATE OR REPLACE FUNCTION change_partition_count(p_partition_count integer)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- The settings last: whoever stores may hold the others, and look at the settings once more.
  LOCK TABLE wh_active_streams, wh_partitions, wh_settings IN EXCLUSIVE MODE;
  UPDATE wh_settings SET partition_count = p_partition_count;
  DELETE FROM wh_partitions;
  INSERT INTO wh_partitions (partition_number) SELECT generate_series(0, p_partition_count - 1);
  UPDATE wh_active_streams s SET partition_number = partition_of(s.stream_id, p_partition_count);
  UPDATE wh_service_instances SET settled_for = NULL, partitions_version = partitions_version + 1;
END;
$$;
