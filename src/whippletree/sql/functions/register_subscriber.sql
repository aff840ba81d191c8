-- Makes a subscriber known. A new one begins after the number given; one that is known stays where it is.
CREATE OR REPLACE FUNCTION register_subscriber(
  p_name text, p_after bigint, p_coordinated boolean, p_patterns text[] DEFAULT '{}',
  p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM require_patterns(p_patterns);
  INSERT INTO wh_subscribers (subscriber_name, checkpoint, coordinated, created_at, updated_at)
  SELECT p_name, p_after, p_coordinated, p_as_of, p_as_of
  WHERE NOT EXISTS (SELECT FROM wh_subscribers WHERE subscriber_name = p_name)
  ON CONFLICT DO NOTHING;
  UPDATE wh_subscribers SET coordinated = p_coordinated
  WHERE subscriber_name = p_name AND coordinated <> p_coordinated;
END;
$$;
