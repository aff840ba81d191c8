-- Lets a subscriber go on after the event at which it is parked or waits for a retry. Recorded, with its last error.
-- False when the subscriber is not at that event.
CREATE OR REPLACE FUNCTION skip_subscriber(
  p_name text, p_number bigint, p_reason text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  INSERT INTO wh_subscriber_actions (subscriber_name, action, number, event_id, attempts, error, reason, acted_at)
  SELECT p_name, 'skip', f.failed_number, e.event_id, f.attempts, f.error, p_reason, p_as_of
  FROM (SELECT * FROM wh_subscribers WHERE subscriber_name = p_name AND failed_number = p_number FOR NO KEY UPDATE) f
  JOIN wh_event_sequence n ON n.number = f.failed_number
  JOIN wh_event_store e USING (stream_id, version);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE wh_subscribers s
  SET checkpoint = p_number, attempts = 0, failed_number = NULL, retry_at = NULL, error = NULL, updated_at = p_as_of,
    state = CASE WHEN s.holder IS NULL THEN 'standby' ELSE 'catching up' END
  WHERE s.subscriber_name = p_name;
  PERFORM pg_notify(feed_channel(), '');
  RETURN true;
END;
$$;
