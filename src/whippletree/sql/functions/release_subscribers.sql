-- Gives up subscribers that this session holds, and tells the standbys; for good also stops standing by.
CREATE OR REPLACE FUNCTION release_subscribers(p_names text[], p_for_good boolean)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM pg_advisory_unlock(k[1], k[2])
  FROM subscriber_locks(p_names, 0) l, subscriber_lock(l.subscriber_name) AS k
  WHERE l.holds AND l.process_id = pg_backend_pid();
  IF p_for_good THEN
    PERFORM pg_advisory_unlock_shared(k[1], k[2])
    FROM subscriber_locks(p_names, 0) l, subscriber_lock('standby:' || l.subscriber_name) AS k
    WHERE NOT l.holds AND l.process_id = pg_backend_pid();
  END IF;
  PERFORM pg_notify(subscriber_channel(), '');
END;
$$;
