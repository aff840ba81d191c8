-- From when on a claim has to look: where the caller's last one left off, unless its partitions have changed since, or
-- an instance died. What has been ready for long may be the caller's only now.
CREATE OR REPLACE FUNCTION scan_since(p_partitions_version bigint, p_known_version bigint, p_ready_since timestamptz)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN COALESCE(CASE WHEN p_known_version = p_partitions_version THEN p_ready_since END, '-infinity');
