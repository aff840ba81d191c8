-- The event store against its counters and its receptors' log.
CREATE OR REPLACE FUNCTION verify_events()
RETURNS TABLE (promise text, subject text, problem text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET work_mem = '64MB'
AS $$
  WITH stored AS (
    SELECT e.stream_id, max(e.version) AS last, count(*) AS count FROM wh_event_store e GROUP BY e.stream_id
  )
  SELECT 'versions are dense', 'events of ' || described_stream(s.stream_id), format('%s events up to version %s', s.count, s.last)
  FROM stored s WHERE s.last <> s.count
  UNION ALL
  SELECT 'versions are counted', 'events of ' || described_stream(COALESCE(w.stream_id, s.stream_id)),
    format('the last event is %s, the counter says %s', COALESCE(s.last, 0), COALESCE(w.event_version, 0))
  FROM wh_streams w FULL JOIN stored s ON s.stream_id = w.stream_id
  WHERE COALESCE(w.event_version, 0) <> COALESCE(s.last, 0)
  UNION ALL
  SELECT 'work is claimable', 'receptor/' || l.receptor_name || ' ' || described_stream(l.stream_id),
    format('event %s waits, but no claim would find it', l.event_id)
  FROM wh_receptor_log l
  WHERE l.processed_at IS NULL AND NOT EXISTS (
    SELECT FROM wh_active_streams s
    WHERE s.queue = 'receptor/' || l.receptor_name AND s.stream_id = l.stream_id AND s.head_version < l.version)
  UNION ALL
  SELECT 'order is kept', 'receptor/' || l.receptor_name || ' ' || described_stream(l.stream_id),
    format('version %s was handled before version %s', l.version, l.before)
  FROM (SELECT r.*, lag(r.version) OVER stream AS before, lag(r.processed_at) OVER stream AS earlier FROM wh_receptor_log r
    WINDOW stream AS (PARTITION BY r.receptor_name, r.stream_id ORDER BY r.version)) l
  WHERE l.before IS NOT NULL AND l.processed_at < COALESCE(l.earlier, 'infinity');
$$;
