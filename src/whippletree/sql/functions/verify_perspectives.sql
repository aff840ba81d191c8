-- The checkpoints of perspectives against the event store and the work that waits.
CREATE OR REPLACE FUNCTION verify_perspectives()
RETURNS TABLE (promise text, subject text, problem text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET work_mem = '64MB'
AS $$
  SELECT 'a checkpoint is an event', c.perspective_name || ' ' || described_stream(c.stream_id),
    format('version %s is not event %s', c.version, c.last_event_id)
  FROM wh_checkpoints c
  LEFT JOIN wh_event_store e ON e.stream_id = c.stream_id AND e.version = c.version AND e.event_id = c.last_event_id
  WHERE e.event_id IS NULL
  UNION ALL
  SELECT 'nothing is applied twice', s.queue || ' ' || described_stream(s.stream_id),
    format('the checkpoint is at %s, but work begins after %s', c.version, s.head_version)
  FROM wh_active_streams s
  JOIN wh_checkpoints c ON c.perspective_name = checkpoints_of(s.queue) AND c.stream_id = s.stream_id
  WHERE s.queue LIKE 'perspective/%' AND s.head_version < c.version
  UNION ALL
  SELECT 'work is claimable', q.queue || ' ' || described_stream(q.stream_id),
    format('events up to version %s wait, but no claim would find them', q.last)
  FROM (
    SELECT p.queue, p.kept, e.stream_id, max(e.version) AS last
    FROM (SELECT queue, checkpoints_of(queue) AS kept FROM event_queues('perspective/*') AS queue OFFSET 0) p
    JOIN wh_event_types t ON p.queue = ANY (t.queues)
    JOIN wh_event_store e ON e.event_type = t.event_type
    GROUP BY p.queue, p.kept, e.stream_id
  ) q
  LEFT JOIN wh_checkpoints c ON c.perspective_name = q.kept AND c.stream_id = q.stream_id
  WHERE q.last > COALESCE(c.version, 0)
    AND NOT EXISTS (SELECT FROM wh_active_streams s WHERE s.queue = q.queue AND s.stream_id = q.stream_id);
$$;
