-- Lets a perspective that follows the feed go on from where a generation of its rows is, and keeps where the live one was.
-- Whoever follows for either is refused under its epoch from now on, and no attempt is counted.
CREATE OR REPLACE FUNCTION exchange_followers(p_known wh_perspectives, p_generation integer, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_name text := 'perspective/' || p_known.perspective_name;
  v_built wh_subscribers;
BEGIN
  DELETE FROM wh_subscribers WHERE subscriber_name = v_name || '@' || p_generation RETURNING * INTO v_built;
  UPDATE wh_perspective_generations g SET checkpoint = s.checkpoint
  FROM wh_subscribers s
  WHERE s.subscriber_name = v_name
    AND g.perspective_name = p_known.perspective_name AND g.generation = p_known.live_generation;
  UPDATE wh_subscribers s
  SET checkpoint = COALESCE(v_built.checkpoint, g.checkpoint), epoch = s.epoch + 1, holder = NULL, waiting = false,
    state = CASE v_built.state WHEN 'parked' THEN 'parked' ELSE 'standby' END,
    attempts = COALESCE(v_built.attempts, 0), failed_number = v_built.failed_number, retry_at = v_built.retry_at,
    error = v_built.error, updated_at = p_as_of
  FROM wh_perspective_generations g
  WHERE s.subscriber_name = v_name AND g.perspective_name = p_known.perspective_name AND g.generation = p_generation;
  UPDATE wh_perspective_generations SET checkpoint = NULL
  WHERE perspective_name = p_known.perspective_name AND generation = p_generation;
  PERFORM pg_notify(feed_channel(), '');
END;
$$;
