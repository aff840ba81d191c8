-- Changes the number of partitions of the installation: every stream lies in another one from now on. Ownership starts anew
-- at the instances' next poll. Waits for whoever is settling partitions; storing and claiming go on.
CREATE OR REPLACE FUNCTION change_partition_count(p_partition_count integer)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- Before the instances' rows: whoever is settling partitions wants both.
  PERFORM pg_advisory_xact_lock(lock_key('membership'));
  UPDATE wh_settings SET partition_count = p_partition_count;
  DELETE FROM wh_partitions;
  INSERT INTO wh_partitions (partition_number) SELECT generate_series(0, p_partition_count - 1);
  UPDATE wh_service_instances SET settled_for = NULL, partitions_version = partitions_version + 1;
END;
$$;
