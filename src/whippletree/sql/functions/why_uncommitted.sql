-- The open transactions that have stored something which nobody can see yet, the oldest first.
CREATE OR REPLACE FUNCTION why_uncommitted()
RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT format('pid %s%s has stored in a transaction that has been open for %s, %s', a.pid,
    CASE WHEN a.application_name <> '' THEN ' (' || a.application_name || ')' ELSE '' END,
    spoken_time(clock_timestamp() - a.xact_start),
    CASE WHEN a.state LIKE 'idle%' THEN 'idle for ' || spoken_time(clock_timestamp() - a.state_change) ELSE 'busy' END)
  FROM pg_stat_activity a
  WHERE a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND EXISTS (
    SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
      AND l.granted AND l.relation IN ('wh_messages'::regclass, 'wh_event_store'::regclass))
  ORDER BY a.xact_start
  LIMIT 5;
$$;
