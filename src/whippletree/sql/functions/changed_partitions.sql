-- The instance's partitions, as one row with their version and a JSON array, unless the caller knows this version.
CREATE OR REPLACE FUNCTION changed_partitions(p_instance_id uuid, p_partitions_version bigint)
RETURNS SETOF wh_work
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN QUERY
  SELECT 'partitions', NULL, NULL::integer, NULL::uuid, i.partitions_version, NULL::uuid, NULL, NULL,
    to_json(ARRAY(SELECT p.partition_number FROM wh_partitions p WHERE p.instance_id = i.instance_id ORDER BY 1)),
    NULL::json, NULL::uuid, NULL::uuid, NULL::double precision, NULL::integer, NULL::bigint, NULL
  FROM wh_service_instances i
  WHERE i.instance_id = p_instance_id AND i.partitions_version IS DISTINCT FROM p_partitions_version;
END;
$$;
