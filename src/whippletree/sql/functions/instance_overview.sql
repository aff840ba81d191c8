-- The instances as they are now, oldest first.
CREATE OR REPLACE FUNCTION instance_overview(p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (instance_id uuid, service_name text, host_name text, process_id integer, age double precision,
  silence double precision, session_locked boolean, partitions bigint, leases bigint, queues text[],
  draining boolean, gone boolean)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT i.instance_id, i.service_name, i.host_name, i.process_id,
    EXTRACT(epoch FROM p_as_of - i.started_at)::double precision,
    EXTRACT(epoch FROM p_as_of - i.last_heartbeat_at)::double precision, i.session_locked,
    (SELECT count(*) FROM wh_partitions p WHERE p.instance_id = i.instance_id),
    (SELECT count(*) FROM wh_active_streams s WHERE s.instance_id = i.instance_id AND is_leased(s.lease_expiry, p_as_of)), i.queues,
    i.draining, is_gone(i, p_as_of)
  FROM wh_service_instances i
  ORDER BY i.started_at, i.instance_id;
$$;
