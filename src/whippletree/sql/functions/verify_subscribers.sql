-- Subscribers against the feed, and against what people did to them.
CREATE OR REPLACE FUNCTION verify_subscribers()
RETURNS TABLE (promise text, subject text, problem text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT 'a checkpoint is in the feed', s.subscriber_name, format('it is at %s, but the feed ends at %s', s.checkpoint, last_number())
  FROM wh_subscribers s WHERE s.checkpoint > last_number()
  UNION ALL
  SELECT 'what failed is ahead', s.subscriber_name, format('it is at %s, and says that event %s failed', s.checkpoint, s.failed_number)
  FROM wh_subscribers s WHERE s.failed_number <= s.checkpoint OR s.failed_number > last_number()
  UNION ALL
  SELECT 'what is parked says why', s.subscriber_name, 'it is parked, but no failed event is known'
  FROM wh_subscribers s WHERE s.state = 'parked' AND (s.failed_number IS NULL OR s.error IS NULL)
  UNION ALL
  SELECT 'what was skipped is an event', a.subscriber_name, format('skipped number %s is not event %s', a.number, a.event_id)
  FROM wh_subscriber_actions a
  LEFT JOIN wh_event_sequence n ON n.number = a.number
  LEFT JOIN wh_event_store e ON e.stream_id = n.stream_id AND e.version = n.version
  WHERE a.action = 'skip' AND a.event_id IS DISTINCT FROM e.event_id
  UNION ALL
  SELECT 'what was skipped stays behind', s.subscriber_name, format('event %s was skipped, but it is at %s', a.number, s.checkpoint)
  FROM wh_subscribers s
  CROSS JOIN LATERAL (
    SELECT l.action, l.number FROM wh_subscriber_actions l
    WHERE l.subscriber_name = s.subscriber_name AND l.action IN ('skip', 'reset') ORDER BY l.action_id DESC LIMIT 1) a
  WHERE a.action = 'skip' AND s.checkpoint < a.number;
$$;
