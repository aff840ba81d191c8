-- What ails the database beneath an installation: subject, problem and remedy of each thing found now.
CREATE OR REPLACE FUNCTION ailments(p_long interval DEFAULT '5 minutes', p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (subject text, problem text, remedy text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT 'long transactions', format('pid %s%s has had a transaction open for %s, %s', a.pid,
    CASE WHEN a.application_name <> '' THEN ' (' || a.application_name || ')' ELSE '' END,
    spoken_time(p_as_of - a.xact_start), a.state),
    format('find out why; while it is open nothing dead is cleared away. `SELECT pg_terminate_backend(%s)` ends it, and '
      'idle_in_transaction_session_timeout prevents it', a.pid)
  FROM pg_stat_activity a
  WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND a.xact_start < p_as_of - p_long
  UNION ALL
  SELECT 'prepared transactions', format('%s has been prepared for %s', t.gid, spoken_time(p_as_of - t.prepared)),
    format('COMMIT PREPARED or ROLLBACK PREPARED %L: it survives restarts and holds its locks for ever', t.gid)
  FROM pg_prepared_xacts t WHERE t.database = current_database() AND t.prepared < p_as_of - p_long
  UNION ALL
  SELECT 'bloat', format('%s has %s dead rows beside %s live ones', t.relname, t.n_dead_tup, t.n_live_tup),
    'see that autovacuum runs and that no transaction is open for long; `VACUUM` clears them away'
  FROM pg_stat_user_tables t
  WHERE t.schemaname = current_schema() AND t.n_dead_tup > 100000 + 3 * t.n_live_tup
  UNION ALL
  SELECT 'autovacuum', 'autovacuum is off', 'turn it on: `ALTER SYSTEM SET autovacuum = on`, then `SELECT pg_reload_conf()`'
  WHERE current_setting('autovacuum') = 'off'
  UNION ALL
  SELECT 'notifications', format('the queue of notifications is %s %% full', round(100 * pg_notification_queue_usage())),
    'a session that listens does not read; find it among the idle ones in pg_stat_activity'
  WHERE pg_notification_queue_usage() > 0.1
  UNION ALL
  SELECT 'connections', format('%s of %s connections are taken', c.taken, current_setting('max_connections')),
    'lower the size of pools, or raise max_connections'
  FROM (SELECT count(*) AS taken FROM pg_stat_activity WHERE backend_type = 'client backend') c
  WHERE c.taken > 0.9 * current_setting('max_connections')::integer
  UNION ALL
  SELECT 'roles', format('the tables belong to %s, a superuser', r.rolname),
    'give them to a role of their own that need not log in, and grant the others: `whippletree roles grant`'
  FROM pg_class k JOIN pg_roles r ON r.oid = k.relowner WHERE k.oid = 'wh_messages'::regclass AND r.rolsuper;
$$;
