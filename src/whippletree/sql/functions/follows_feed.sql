-- Whether a perspective follows the feed, because it chooses its keys, rather than each stream.
CREATE OR REPLACE FUNCTION follows_feed(p_perspective_name text)
RETURNS boolean
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM wh_subscribers s WHERE s.subscriber_name = 'perspective/' || p_perspective_name);
$$;
