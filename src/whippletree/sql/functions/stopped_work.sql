-- What has stopped at a message, an event or a stream, or as a subscriber of that name: for a receptor the message, as a
-- claim would hand it out; for a perspective the event, its version in detail; for subscriber/NAME the number of the event
-- in version. None when nothing has stopped there. Nothing is leased.
CREATE OR REPLACE FUNCTION stopped_work(p_thing text)
RETURNS SETOF wh_work
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  WITH stopped AS MATERIALIZED (
    SELECT s.* FROM stopped_streams(NULL, true, NULL) s WHERE stream_id_of(p_thing) IN (s.message_id, s.stream_id)
  )
  SELECT 'stopped', m.queue, NULL::integer, m.stream_id, m.version, m.message_id, m.message_type, m.topic, m.payload,
    m.headers, m.correlation_id, m.causation_id, date_part('epoch', m.created_at), s.attempts, 0::bigint, NULL::text
  FROM stopped s
  JOIN wh_messages m ON m.queue = s.queue AND m.stream_id = s.stream_id AND m.version = s.version
  WHERE s.queue = 'inbox'
  UNION ALL
  SELECT w.* FROM stopped s
  CROSS JOIN LATERAL leased_event_work(s.queue, ARRAY[s.stream_id], ARRAY[s.version - 1], ARRAY[s.version],
    ARRAY[s.attempts], ARRAY[0::bigint]) w
  WHERE s.queue NOT IN ('outbox', 'inbox')
  UNION ALL
  SELECT 'stopped', 'subscriber/' || f.subscriber_name, NULL, n.stream_id, n.number, e.event_id, e.event_type, NULL, NULL,
    NULL, NULL, NULL, date_part('epoch', e.created_at), f.attempts, 0, NULL
  FROM wh_subscribers f
  JOIN wh_event_sequence n ON n.number = f.failed_number
  JOIN wh_event_store e ON e.stream_id = n.stream_id AND e.version = n.version
  WHERE p_thing = f.subscriber_name OR stream_id_of(p_thing) IN (e.event_id, e.stream_id);
$$;
