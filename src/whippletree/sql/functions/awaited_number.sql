-- The number of the feed up to which a subscriber has to come to have finished an event; NULL while the event has none.
-- Nobody looks events up in the feed by stream, so it has no index for that. What is numbered and not among what the
-- subscriber has before it lies behind it: then 0 does. The newest are looked at first, being mostly asked for.
CREATE OR REPLACE FUNCTION awaited_number(p_subscriber_name text, p_stream_id uuid, p_version bigint)
RETURNS bigint
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT COALESCE((
    SELECT n.number FROM wh_event_sequence n
    WHERE n.number > s.checkpoint AND n.stream_id = p_stream_id AND n.version = p_version
    ORDER BY n.number DESC LIMIT 1), 0)
  FROM wh_subscribers s
  CROSS JOIN (SELECT seen_below, seen_open FROM wh_event_sequence ORDER BY number DESC LIMIT 1) l
  JOIN wh_event_store e ON e.stream_id = p_stream_id AND e.version = p_version
    AND e.arrival < l.seen_below AND e.arrival <> ALL (l.seen_open)
  WHERE s.subscriber_name = p_subscriber_name;
$$;
