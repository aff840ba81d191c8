-- What was finished, where that is kept: each message of a stream once, and in order.
CREATE OR REPLACE FUNCTION verify_finished()
RETURNS TABLE (promise text, subject text, problem text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET work_mem = '64MB'
AS $$
  SELECT CASE WHEN f.before = f.version THEN 'nothing is handled twice' ELSE 'order is kept' END,
    f.queue || ' ' || described_stream(f.stream_id),
    CASE WHEN f.before = f.version THEN format('version %s was finished twice', f.version)
      ELSE format('version %s was finished before version %s', f.version, f.before) END
  FROM (SELECT m.*, lag(m.version) OVER stream AS before, lag(m.processed_at) OVER stream AS earlier
    FROM wh_finished_messages m WHERE m.stream_id <> m.message_id
    WINDOW stream AS (PARTITION BY m.queue, m.stream_id ORDER BY m.version, m.processed_at)) f
  WHERE f.before = f.version OR f.processed_at < f.earlier;
$$;
