-- Whether a subscriber has finished everything up to a number of the feed.
CREATE OR REPLACE FUNCTION has_followed(p_subscriber_name text, p_number bigint)
RETURNS boolean
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM wh_subscribers s WHERE s.subscriber_name = p_subscriber_name AND s.checkpoint >= p_number);
$$;
