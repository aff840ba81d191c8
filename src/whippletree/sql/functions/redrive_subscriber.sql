-- Lets a parked or waiting subscriber try its event again at once, with all its attempts before it. Recorded. False
-- when it neither is parked nor waits for a retry.
CREATE OR REPLACE FUNCTION redrive_subscriber(
  p_name text, p_reason text DEFAULT NULL, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  INSERT INTO wh_subscriber_actions (subscriber_name, action, number, event_id, attempts, error, reason, acted_at)
  SELECT p_name, 'redrive', f.failed_number, e.event_id, f.attempts, f.error, p_reason, p_as_of
  FROM (SELECT * FROM wh_subscribers WHERE subscriber_name = p_name FOR NO KEY UPDATE) f
  JOIN wh_event_sequence n ON n.number = f.failed_number
  JOIN wh_event_store e USING (stream_id, version);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE wh_subscribers s
  SET attempts = 0, retry_at = p_as_of, updated_at = p_as_of,
    state = CASE WHEN s.holder IS NULL THEN 'standby' ELSE 'catching up' END
  WHERE s.subscriber_name = p_name;
  PERFORM pg_notify(feed_channel(), '');
  RETURN true;
END;
$$;
