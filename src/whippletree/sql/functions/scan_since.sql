-- From when on a claim has to look: where the caller's last one left off, unless its partitions have changed since, or
-- an instance died. What has been ready for long may be the caller's only now.
CREATE OR REPLACE FUNCTION scan_since(p_instance_id uuid, p_partitions_version bigint, p_ready_since timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN COALESCE((
    SELECT p_ready_since FROM wh_service_instances
    WHERE instance_id = p_instance_id AND partitions_version = p_partitions_version), '-infinity');
END;
$$;
