-- The channel on which subscribers with nothing to do listen for events.
CREATE OR REPLACE FUNCTION feed_channel()
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT wake_channel() || ':feed';
$$;
