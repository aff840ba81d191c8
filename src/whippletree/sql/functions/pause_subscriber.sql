-- Stops a subscriber where it is, or lets it go on. What is in the middle of its transaction is undone. Recorded.
CREATE OR REPLACE FUNCTION pause_subscriber(
  p_name text, p_paused boolean, p_reason text DEFAULT NULL, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE wh_subscribers SET paused = p_paused, updated_at = p_as_of
  WHERE subscriber_name = p_name AND paused <> p_paused;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO wh_subscriber_actions (subscriber_name, action, number, attempts, reason, acted_at)
  SELECT p_name, CASE WHEN p_paused THEN 'pause' ELSE 'resume' END, checkpoint, attempts, p_reason, p_as_of
  FROM wh_subscribers WHERE subscriber_name = p_name;
  PERFORM pg_notify(feed_channel(), '');
  RETURN true;
END;
$$;
