-- Puts a subscriber after another number of the feed: what follows is given to it, again or for the first time. What is
-- in the middle of its transaction is undone. Recorded. False when there is no such subscriber. Refused beyond the feed's
-- end: whatever came up to there would never be given to it.
CREATE OR REPLACE FUNCTION reset_subscriber(
  p_name text, p_after bigint, p_reason text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_after > last_number() THEN
    RAISE EXCEPTION 'the feed ends at %; a subscriber cannot be put after %', last_number(), p_after
      USING ERRCODE = 'WH004';
  END IF;
  IF EXISTS (SELECT FROM wh_subscribers WHERE subscriber_name = p_name AND through IS NOT NULL) THEN
    RAISE EXCEPTION '% is a part of a rebuild, whose other parts stay where they are', p_name
      USING ERRCODE = 'WH004', HINT = 'Abandon the rebuild and begin another one.';
  END IF;
  INSERT INTO wh_subscriber_actions (subscriber_name, action, number, attempts, error, reason, acted_at)
  SELECT p_name, 'reset', f.checkpoint, f.attempts, f.error, p_reason, p_as_of
  FROM (SELECT * FROM wh_subscribers WHERE subscriber_name = p_name FOR NO KEY UPDATE) f;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE wh_subscribers s
  SET checkpoint = p_after, attempts = 0, failed_number = NULL, retry_at = NULL, error = NULL, updated_at = p_as_of,
    state = CASE WHEN s.holder IS NULL THEN 'standby' ELSE 'catching up' END
  WHERE s.subscriber_name = p_name;
  PERFORM pg_notify(feed_channel(), '');
  RETURN true;
END;
$$;
