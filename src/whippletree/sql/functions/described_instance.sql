-- An instance in words: which service, where, and how it is.
CREATE OR REPLACE FUNCTION described_instance(p_instance_id uuid, p_as_of timestamptz)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT COALESCE((
    SELECT format('%s on %s:%s, which last beat %s ago%s', i.service_name, i.host_name, i.process_id,
      spoken_time(p_as_of - i.last_heartbeat_at), CASE WHEN is_gone(i, p_as_of) THEN ' and is gone' WHEN i.draining THEN ' and is draining' ELSE '' END)
    FROM wh_service_instances i WHERE i.instance_id = p_instance_id
  ), format('instance %s, which is gone', p_instance_id));
$$;
