-- Keeps the live rows of a perspective that chooses its keys where they are until the transaction ends, and returns the number
-- of the last event in them. Whatever its holder has folded onto rows as they were is refused under its epoch, and no attempt is
-- counted. Write the row first, as the holder does: else each could wait for the other.
CREATE OR REPLACE FUNCTION take_over_follower(p_perspective_name text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_checkpoint bigint;
BEGIN
  UPDATE wh_subscribers s
  SET epoch = s.epoch + 1, holder = NULL, waiting = false, updated_at = p_as_of,
    state = CASE s.state WHEN 'parked' THEN 'parked' ELSE 'standby' END
  WHERE s.subscriber_name = 'perspective/' || p_perspective_name
  RETURNING s.checkpoint INTO v_checkpoint;
  -- The holder learns of it at once, and begins again.
  PERFORM pg_notify(feed_channel(), '');
  RETURN v_checkpoint;
END;
$$;
