-- Removes instances that are gone: their session lock is free and they have been silent for over a second, or they
-- have been silent for longer than the stale threshold. Their partitions and leases are freed with them. One remover
-- at a time. Silence while the server itself was down does not count. Returns how many were removed.
CREATE OR REPLACE FUNCTION remove_dead_instances(
  p_instance_id uuid, p_stale_threshold_seconds double precision, p_as_of timestamptz)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_up interval := p_as_of - pg_postmaster_start_time();
  v_stale_after interval := make_interval(secs => p_stale_threshold_seconds);
  v_silent_after constant interval := '1.2 seconds';
  -- After a restart every session lock is free until the instances have reconnected.
  v_reconnect_within constant interval := '10 seconds';
  v_dead uuid[];
BEGIN
  IF NOT EXISTS (
    SELECT FROM wh_service_instances i
    WHERE i.instance_id <> p_instance_id
      AND i.last_heartbeat_at < p_as_of - CASE WHEN i.session_locked THEN least(v_silent_after, v_stale_after)
        ELSE v_stale_after END)
    OR NOT pg_try_advisory_xact_lock(lock_key('membership')) THEN
    RETURN 0;
  END IF;

  WITH silent AS MATERIALIZED (
    SELECT i.instance_id, i.last_heartbeat_at < p_as_of - v_stale_after AND v_up > v_stale_after AS stale
    FROM wh_service_instances i
    WHERE i.instance_id <> p_instance_id AND i.last_heartbeat_at < p_as_of - least(v_silent_after, v_stale_after)
      AND (i.session_locked OR i.last_heartbeat_at < p_as_of - v_stale_after)
    FOR UPDATE SKIP LOCKED
  ), dead AS (
    DELETE FROM wh_service_instances i
    USING silent s
    WHERE i.instance_id = s.instance_id
      AND (s.stale OR (i.session_locked AND v_up > v_reconnect_within
        AND pg_try_advisory_xact_lock(session_lock_key(i.instance_id))))
    RETURNING i.instance_id, i.last_heartbeat_at, s.stale
  ), remembered AS (
    INSERT INTO wh_evicted_instances (instance_id, evicted_at, evicted_by, reason)
    SELECT d.instance_id, p_as_of, p_instance_id,
      CASE WHEN d.stale THEN 'no heartbeat since ' ELSE 'session ended, no heartbeat since ' END || d.last_heartbeat_at
    FROM dead d
    RETURNING instance_id
  )
  SELECT array_agg(instance_id) INTO v_dead FROM remembered;
  IF v_dead IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM free_instances(v_dead, p_as_of);
  RETURN cardinality(v_dead);
END;
$$;
