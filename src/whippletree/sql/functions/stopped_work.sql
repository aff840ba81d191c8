-- A message at which a stream has stopped, as a claim would hand it out, for each receptor that it stopped; none when it
-- has not stopped. Nothing is leased.
CREATE OR REPLACE FUNCTION stopped_work(p_message_id uuid)
RETURNS SETOF wh_work
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT 'stopped', m.queue, NULL::integer, m.stream_id, m.version, m.message_id, m.message_type, m.topic, m.payload,
    m.headers, m.correlation_id, m.causation_id, m.created_at, s.attempts, 0::bigint, NULL::text
  FROM stopped_streams('inbox', true, NULL) s
  JOIN wh_messages m ON m.queue = s.queue AND m.stream_id = s.stream_id AND m.version = s.version
  WHERE s.message_id = p_message_id
  UNION ALL
  SELECT w.* FROM stopped_streams(NULL, true, NULL) s
  CROSS JOIN LATERAL leased_event_work(s.queue, ARRAY[s.stream_id], ARRAY[s.version - 1], ARRAY[s.version],
    ARRAY[s.attempts], ARRAY[0::bigint]) w
  WHERE s.message_id = p_message_id AND s.queue LIKE 'receptor/%';
$$;
