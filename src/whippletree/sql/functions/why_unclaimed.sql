-- Why nobody has claimed a stream that is ready.
CREATE OR REPLACE FUNCTION why_unclaimed(p_stream wh_active_streams, p_version bigint, p_as_of timestamptz)
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_partition integer := partition_of(p_stream.stream_hash, (SELECT partition_count FROM wh_settings));
  v_owner uuid := (SELECT instance_id FROM wh_partitions WHERE partition_number = v_partition);
  v_claimants uuid[] := ARRAY(
    SELECT claimants(p_stream.queue, v_partition, p_stream.instance_id, p_as_of));
  v_nobody text := nobody_works(p_stream.queue, p_as_of);
BEGIN
  RETURN NEXT format('version %s has been ready for %s', p_version,
    spoken_time(p_as_of - greatest(p_stream.ready_at, p_stream.lease_expiry)));
  IF p_stream.instance_id IS NOT NULL THEN
    RETURN NEXT format('its lease has ended, and any instance may take it; attempt %s was left to %s', p_stream.attempts,
      described_instance(p_stream.instance_id, p_as_of));
  END IF;
  -- A claim passes over what is locked; so does this look.
  PERFORM FROM wh_active_streams s WHERE s.queue = p_stream.queue AND s.stream_id = p_stream.stream_id
  FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN NEXT 'it is held by ' || COALESCE((
      SELECT described_session(s.xmax) FROM wh_active_streams s
      WHERE s.queue = p_stream.queue AND s.stream_id = p_stream.stream_id), 'a transaction that has just ended');
  END IF;
  IF v_nobody IS NOT NULL THEN
    RETURN NEXT format('partition %s %s: %s', v_partition,
      CASE WHEN v_owner IS NULL THEN 'has no owner' ELSE 'belongs to ' || described_instance(v_owner, p_as_of) END, v_nobody);
  ELSIF v_claimants <> '{}' THEN
    RETURN QUERY SELECT 'it is for ' || described_instance(c, p_as_of) FROM unnest(v_claimants) c LIMIT 3;
    RETURN QUERY SELECT CASE WHEN count(*) = 1000 THEN 'at least ' ELSE '' END || spoken_count(count(*), 'stream')
      || ' became ready before it' FROM (SELECT FROM wh_active_streams s WHERE s.queue = p_stream.queue
      AND is_ready(s.ready_at, s.lease_expiry, p_as_of) AND s.ready_at < p_stream.ready_at LIMIT 1000) s
    HAVING count(*) > 0;
  ELSIF NOT EXISTS (SELECT FROM wh_service_instances i
    WHERE works_queue(i.queues, p_stream.queue) AND NOT i.draining AND NOT is_gone(i, p_as_of)) THEN
    RETURN NEXT format('every instance that works %s is draining; start one with `whippletree run`', p_stream.queue);
  ELSIF v_owner IS NULL THEN
    RETURN NEXT format('partition %s has no owner: the instances that work %s have not taken it; is there a cap on '
      'partitions per instance?', v_partition, p_stream.queue);
  ELSE
    RETURN NEXT format('partition %s belongs to %s', v_partition, described_instance(v_owner, p_as_of));
  END IF;
END;
$$;
