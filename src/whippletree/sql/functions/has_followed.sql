-- Whether a subscriber has finished an event. Its number is looked for among the newest; without one it is not finished.
CREATE OR REPLACE FUNCTION has_followed(
  p_subscriber_name text, p_stream_id uuid, p_version bigint, p_newest bigint DEFAULT 100000)
RETURNS boolean
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM (SELECT * FROM wh_event_sequence ORDER BY number DESC LIMIT p_newest) n, wh_subscribers s
    WHERE n.stream_id = p_stream_id AND n.version = p_version
      AND s.subscriber_name = p_subscriber_name AND s.checkpoint >= n.number);
$$;
