-- The database session that holds a transaction open, in words; NULL when none of that number is open.
CREATE OR REPLACE FUNCTION described_session(p_transaction xid)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT format('an open transaction of pid %s%s, %s for %s', a.pid,
    CASE WHEN a.application_name <> '' THEN ' (' || a.application_name || ')' ELSE '' END,
    CASE WHEN a.state LIKE 'idle%' THEN 'idle' ELSE 'busy' END, spoken_time(clock_timestamp() - a.state_change))
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
  WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid = p_transaction;
$$;
