-- The first call of a transaction with effects of a subscriber. Only one such transaction is open at a time: one that
-- a former holder left open, with its locks, is ended together with its connection.
CREATE OR REPLACE FUNCTION enter_subscriber(p_name text, p_epoch bigint)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_key bigint := lock_key('effects:' || p_name);
BEGIN
  PERFORM require_read_committed();
  PERFORM require_epoch(p_name, p_epoch);
  IF NOT pg_try_advisory_xact_lock(v_key) THEN
    PERFORM pg_terminate_backend(l.pid, 5000)
    FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((l.classid::bigint << 32) | l.objid::bigint) = v_key;
    PERFORM pg_advisory_xact_lock(v_key);
    PERFORM require_epoch(p_name, p_epoch);
  END IF;
END;
$$;
