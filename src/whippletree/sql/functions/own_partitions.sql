-- Settles which partitions the instance owns. It hands those that are another's share over to that instance, once it
-- holds no lease there, and takes those of its own share that nobody alive owns; it robs nobody. Runs only while
-- membership is not the one for which it has settled, one instance at a time, so that an idle poll writes nothing.
-- An instance that drains has no share, and counts as gone: its leases hold, but its partitions are free.
CREATE OR REPLACE FUNCTION own_partitions(p_instance_id uuid, p_max_partitions integer, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_members uuid[] := ARRAY(SELECT instance_id FROM wh_service_instances WHERE NOT draining ORDER BY instance_id);
  v_count integer := cardinality(v_members);
  v_share integer := array_position(v_members, p_instance_id) - 1;
  v_membership uuid := membership_of(v_members);
  v_settled_for uuid;
  v_busy integer[];
  v_reachable uuid[];
  v_room integer;
BEGIN
  IF v_share IS NULL
    OR p_max_partitions IS NULL
      AND v_membership = (SELECT settled_for FROM wh_service_instances WHERE instance_id = p_instance_id)
    OR NOT lock_membership() THEN
    RETURN;
  END IF;
  -- Whoever joined before we had the lock may own partitions already, and is not to be robbed: the next poll knows him.
  IF v_members <> ARRAY(SELECT instance_id FROM wh_service_instances WHERE NOT draining ORDER BY instance_id) THEN
    RETURN;
  END IF;

  -- All streams are read only where there is something to hand over.
  v_busy := ARRAY(
    SELECT DISTINCT partition_of(s.stream_hash, k.partition_count) FROM wh_active_streams s, wh_settings k
    WHERE s.instance_id = p_instance_id AND is_leased(s.lease_expiry, p_as_of) AND EXISTS (SELECT FROM wh_partitions p
      WHERE p.instance_id = p_instance_id AND p.partition_number % v_count <> v_share));
  -- Whoever has not committed its own poll yet is not waited for: what is its share it gets another time. Only those are
  -- locked for whom there is something: to lock a row is to write, and keeps its instance from its own heartbeat.
  v_reachable := ARRAY(SELECT i.instance_id FROM wh_service_instances i WHERE i.instance_id IN (
    SELECT v_members[p.partition_number % v_count + 1] FROM wh_partitions p WHERE p.instance_id = p_instance_id
      AND p.partition_number % v_count <> v_share) FOR NO KEY UPDATE OF i SKIP LOCKED);
  WITH handed AS (
    -- With a limit in force the taker counts for itself, so the partition is only let go.
    UPDATE wh_partitions p
    SET instance_id = CASE WHEN p_max_partitions IS NULL THEN v_members[p.partition_number % v_count + 1] END
    WHERE p.instance_id = p_instance_id AND p.partition_number % v_count <> v_share
      AND p.partition_number <> ALL (v_busy) AND v_members[p.partition_number % v_count + 1] = ANY (v_reachable)
    RETURNING p.instance_id
  )
  UPDATE wh_service_instances i
  SET partitions_version = i.partitions_version + 1, settled_for = NULL
  WHERE i.instance_id IN (SELECT h.instance_id FROM handed h UNION ALL
    SELECT p_instance_id WHERE EXISTS (SELECT FROM handed));

  SELECT COALESCE(p_max_partitions, 1000000) - count(*) INTO v_room FROM wh_partitions WHERE instance_id = p_instance_id;
  WITH vacant AS MATERIALIZED (
    SELECT p.partition_number FROM wh_partitions p
    WHERE p.partition_number % v_count = v_share AND (p.instance_id IS NULL OR p.instance_id <> ALL (v_members))
    ORDER BY p.partition_number LIMIT greatest(v_room, 0)
  ), taken AS (
    UPDATE wh_partitions p SET instance_id = p_instance_id FROM vacant v WHERE p.partition_number = v.partition_number
    RETURNING p.partition_number
  )
  UPDATE wh_service_instances SET partitions_version = partitions_version + 1
  WHERE instance_id = p_instance_id AND EXISTS (SELECT FROM taken);

  -- Settled only with its whole share and nothing else, and for no other membership: what it is still to get or to give
  -- may be freed while it does not look, and must not be forgotten when an earlier membership comes back.
  v_settled_for := CASE WHEN NOT EXISTS (SELECT FROM wh_partitions p
    WHERE (p.instance_id IS NOT DISTINCT FROM p_instance_id) <> (p.partition_number % v_count = v_share))
    THEN v_membership END;
  UPDATE wh_service_instances SET settled_for = v_settled_for
  WHERE instance_id = p_instance_id AND settled_for IS DISTINCT FROM v_settled_for;
END;
$$;
