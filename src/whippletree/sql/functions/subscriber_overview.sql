-- Every subscriber as it is now. behind counts the events after its checkpoint, those without a number too; lag is for
-- how many seconds the first of them has been there, NULL when there is none. A part of a rebuild has those up to its end.
CREATE OR REPLACE FUNCTION subscriber_overview(p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (subscriber_name text, state text, checkpoint bigint, behind bigint, lag double precision, paused boolean,
  attempts integer, failed_number bigint, error text, holder text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT s.subscriber_name, s.state, s.checkpoint, s.behind + CASE WHEN s.through IS NULL THEN u.events ELSE 0 END,
    CASE WHEN s.through IS NULL THEN EXTRACT(epoch FROM p_as_of - COALESCE(e.created_at, u.oldest))::double precision END, s.paused, s.attempts,
    s.failed_number, s.error, i.host_name || ':' || i.process_id
  FROM wh_subscriptions s
  CROSS JOIN unnumbered_events() u
  LEFT JOIN wh_event_sequence n ON n.number = s.checkpoint + 1
  LEFT JOIN wh_event_store e ON e.stream_id = n.stream_id AND e.version = n.version
  LEFT JOIN wh_service_instances i ON i.instance_id = s.holder
  ORDER BY s.subscriber_name;
$$;
