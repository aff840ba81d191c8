-- The server's clock was put back, by itself or because another server has taken over: what was ready, leased or to be tried
-- again by the old clock would wait for as long as it went back. Every time goes back with it, as far as it was written
-- later than now; doing so twice changes nothing. What is locked is skipped: whoever has it writes the new time. All
-- instances are told to look at everything again, for what they remember of times is wrong.
CREATE OR REPLACE FUNCTION follow_clock(p_as_of timestamptz)
RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  UPDATE wh_active_streams s
  SET ready_at = s.ready_at - (s.moved_at - p_as_of), lease_expiry = s.lease_expiry - (s.moved_at - p_as_of), moved_at = p_as_of
  FROM (SELECT queue, stream_id FROM wh_active_streams WHERE moved_at > p_as_of FOR NO KEY UPDATE SKIP LOCKED) ahead
  WHERE s.queue = ahead.queue AND s.stream_id = ahead.stream_id;
  UPDATE wh_subscribers s
  SET retry_at = s.retry_at - (s.updated_at - p_as_of), updated_at = p_as_of
  FROM (SELECT subscriber_name FROM wh_subscribers WHERE updated_at > p_as_of FOR NO KEY UPDATE SKIP LOCKED) ahead
  WHERE s.subscriber_name = ahead.subscriber_name;
  UPDATE wh_service_instances i
  SET last_heartbeat_at = least(i.last_heartbeat_at, p_as_of), partitions_version = i.partitions_version + 1
  FROM (SELECT instance_id FROM wh_service_instances FOR NO KEY UPDATE SKIP LOCKED) reachable
  WHERE i.instance_id = reachable.instance_id;
$$;
