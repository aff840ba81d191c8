-- The event store against its counters, its checkpoints and its receptors' log.
CREATE OR REPLACE FUNCTION verify_events()
RETURNS TABLE (promise text, subject text, problem text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  WITH stored AS (
    SELECT e.stream_id, max(e.version) AS last, count(*) AS count FROM wh_event_store e GROUP BY e.stream_id
  )
  SELECT 'versions are dense', 'events of ' || described_stream(s.stream_id), format('%s events up to version %s', s.count, s.last)
  FROM stored s WHERE s.last <> s.count
  UNION ALL
  SELECT 'versions are counted', 'events of ' || described_stream(w.stream_id),
    format('the last event is %s, the counter says %s', COALESCE(s.last, 0), w.event_version)
  FROM wh_streams w LEFT JOIN stored s ON s.stream_id = w.stream_id WHERE w.event_version <> COALESCE(s.last, 0)
  UNION ALL
  SELECT 'a checkpoint is an event', c.perspective_name || ' ' || described_stream(c.stream_id),
    format('version %s is not event %s', c.version, c.last_event_id)
  FROM wh_checkpoints c
  LEFT JOIN wh_event_store e ON e.stream_id = c.stream_id AND e.version = c.version AND e.event_id = c.last_event_id
  WHERE e.event_id IS NULL
  UNION ALL
  SELECT 'work is claimable', q.queue || ' ' || described_stream(q.stream_id),
    format('events up to version %s wait, but no claim would find them', q.last)
  FROM (
    SELECT 'perspective/' || m.perspective_name AS queue, m.perspective_name, m.kept, e.stream_id, max(e.version) AS last
    FROM (SELECT substr(q, 13) AS perspective_name, checkpoints_of(q) AS kept FROM event_queues('perspective/*') q OFFSET 0) m
    JOIN wh_event_types t ON 'perspective/' || m.perspective_name = ANY (t.queues)
    JOIN wh_event_store e ON e.event_type = t.event_type
    GROUP BY m.perspective_name, m.kept, e.stream_id
  ) q
  LEFT JOIN wh_checkpoints c ON c.perspective_name = q.kept AND c.stream_id = q.stream_id
  WHERE q.last > COALESCE(c.version, 0)
    AND NOT EXISTS (SELECT FROM wh_active_streams s WHERE s.queue = q.queue AND s.stream_id = q.stream_id)
  UNION ALL
  SELECT 'work is claimable', 'receptor/' || l.receptor_name || ' ' || described_stream(l.stream_id),
    format('event %s waits, but no claim would find it', l.event_id)
  FROM wh_receptor_log l
  WHERE l.processed_at IS NULL AND NOT EXISTS (
    SELECT FROM wh_active_streams s
    WHERE s.queue = 'receptor/' || l.receptor_name AND s.stream_id = l.stream_id AND s.head_version < l.version);
$$;
