-- Who holds and who stands by for the named subscribers, by their sessions. A session that has not spoken for so many
-- seconds is silent: its process is stopped or cut off.
CREATE OR REPLACE FUNCTION subscriber_locks(p_names text[], p_silent_seconds double precision)
RETURNS TABLE (subscriber_name text, process_id integer, holds boolean, silent boolean)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT n.name, l.pid, n.holds,
    COALESCE(a.state_change < clock_timestamp() - p_silent_seconds * interval '1 second', false)
  FROM (
    SELECT name, true AS holds, subscriber_lock(name) AS key FROM unnest(p_names) AS name
    UNION ALL
    SELECT name, false, subscriber_lock('standby:' || name) FROM unnest(p_names) AS name
  ) n
  JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
    AND l.classid::bigint = (n.key[1]::bigint & 4294967295) AND l.objid::bigint = (n.key[2]::bigint & 4294967295)
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid;
$$;
