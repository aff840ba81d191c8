-- The feed against the event store: every event once, in the order of its stream, under numbers without a gap.
CREATE OR REPLACE FUNCTION verify_feed()
RETURNS TABLE (promise text, subject text, problem text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET work_mem = '64MB'
AS $$
  SELECT 'the feed has no gap', 'number ' || n.number, format('comes after %s', n.before)
  FROM (SELECT s.number, lag(s.number, 1, 0::bigint) OVER (ORDER BY s.number) AS before FROM wh_event_sequence s) n
  WHERE n.number <> n.before + 1
  UNION ALL
  SELECT CASE WHEN n.version = n.before THEN 'an event has one number' ELSE 'the feed keeps the order of streams' END,
    'number ' || n.number, format('is version %s of %s, which comes after version %s at number %s', n.version,
      described_stream(n.stream_id), n.before, n.place)
  FROM (
    SELECT s.number, s.stream_id, s.version, lag(s.version) OVER stream AS before, lag(s.number) OVER stream AS place
    FROM wh_event_sequence s WINDOW stream AS (PARTITION BY s.stream_id ORDER BY s.number)
  ) n
  WHERE n.version <= n.before
  UNION ALL
  SELECT 'a number is an event', 'number ' || n.number, format('there is no version %s of %s', n.version, described_stream(n.stream_id))
  FROM wh_event_sequence n
  WHERE NOT EXISTS (SELECT FROM wh_event_store e WHERE e.stream_id = n.stream_id AND e.version = n.version)
  UNION ALL
  -- What the last numbering had not seen gets its number from the next one. After a restore all events are compared.
  SELECT 'nothing is left out of the feed', 'event ' || e.event_id, 'it has no number, and no numbering would give it one'
  FROM (SELECT n.seen_below, n.seen_open FROM wh_event_sequence n ORDER BY n.number DESC LIMIT 1) l
  JOIN wh_settings k ON k.server_id = (SELECT system_identifier FROM pg_control_system())
  JOIN wh_event_store e ON e.arrival < l.seen_below AND e.arrival <> ALL (l.seen_open)
  WHERE NOT EXISTS (SELECT FROM wh_event_sequence n WHERE n.stream_id = e.stream_id AND n.version = e.version);
$$;
