-- The channel on which standbys hear that a subscriber was given up.
CREATE OR REPLACE FUNCTION subscriber_channel()
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT wake_channel() || ':subscribers';
$$;
