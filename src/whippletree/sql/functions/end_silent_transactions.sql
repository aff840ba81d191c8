-- Ends the transactions that an instance left open when it was stopped or cut off: its locks, on rows of the users too,
-- would keep whoever has taken over its work waiting for as long as the server believes in the connection. Both have to
-- be silent for so many seconds, the session and its instance. Acts as the caller: it may end its own role's sessions and
-- nobody else's. How sessions are named: claim/instance.py. Returns how many were ended.
CREATE OR REPLACE FUNCTION end_silent_transactions(p_silent_seconds double precision)
RETURNS bigint
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid))
  FROM pg_stat_activity a
  WHERE a.datname = current_database() AND a.usename = session_user AND a.state LIKE 'idle in transaction%'
    AND a.application_name LIKE 'whippletree % ' || left(md5(current_schema()), 8) || '____________'
    AND a.state_change < clock_timestamp() - make_interval(secs => p_silent_seconds)
    AND NOT is_heard_of(a.application_name, p_silent_seconds);
$$;
