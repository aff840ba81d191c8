-- How the subscribers stand to an event, whose number is looked for among the newest of the feed. A part of a rebuild
-- goes past events without having them.
CREATE OR REPLACE FUNCTION why_followed(
  p_event_id uuid, p_stream_id uuid, p_version bigint, p_newest bigint DEFAULT 100000)
RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  WITH found AS MATERIALIZED (
    SELECT n.number FROM (SELECT * FROM wh_event_sequence ORDER BY number DESC LIMIT p_newest) n
    WHERE n.stream_id = p_stream_id AND n.version = p_version
  )
  SELECT CASE
    WHEN EXISTS (SELECT FROM found) THEN format('its number in the feed is %s', (SELECT number FROM found))
    WHEN last_number() > p_newest THEN format('its number in the feed is not among the newest %s', p_newest)
    ELSE 'it has no number in the feed yet: it gets one when somebody reads on' END
  WHERE EXISTS (SELECT FROM wh_subscribers)
  UNION ALL
  SELECT CASE
    WHEN a.reason IS NOT NULL THEN format('subscriber %s passed over it: %s', s.subscriber_name, a.reason)
    WHEN s.checkpoint >= f.number THEN format('subscriber %s has gone past it', s.subscriber_name)
    WHEN s.failed_number = f.number THEN format('subscriber %s %s; `whippletree why %s` says why', s.subscriber_name,
      CASE WHEN is_parked(s.retry_at) THEN 'has stopped at it' ELSE 'failed at it, and tries again' END, s.subscriber_name)
    ELSE format('subscriber %s is at %s and has not come to it; `whippletree why %s` says why', s.subscriber_name,
      s.checkpoint, s.subscriber_name) END
  FROM found f CROSS JOIN (SELECT * FROM wh_subscribers WHERE through IS NULL ORDER BY subscriber_name) s
  LEFT JOIN LATERAL (
    SELECT a.reason FROM wh_subscriber_actions a
    WHERE a.subscriber_name = s.subscriber_name AND a.action = 'skip' AND a.event_id = p_event_id
      AND s.checkpoint >= f.number
    ORDER BY a.action_id DESC LIMIT 1) a ON true;
$$;
