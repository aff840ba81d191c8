-- This database was restored on another server, whose transaction ids may be smaller than those that the events bear.
-- From now on arrivals are counted above all that there are, and every event without a number gets one, found by
-- comparing all of them, once. NULL when an append is under way: it may know the old base only. The caller numbers.
CREATE OR REPLACE FUNCTION rebase_arrivals()
RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_base bigint;
  v_last bigint;
  v_numbered bigint;
BEGIN
  -- Every append holds this lock to its end, shared.
  IF NOT pg_try_advisory_xact_lock(lock_key('event types')) THEN
    RETURN NULL;
  END IF;
  UPDATE wh_settings
  SET server_id = (SELECT system_identifier FROM pg_control_system()),
    -- What was seen counts too: transactions without events had moved it on.
    arrival_base = GREATEST(arrival_base, (SELECT max(e.arrival) FROM wh_event_store e),
      (SELECT n.seen_below FROM wh_event_sequence n ORDER BY n.number DESC LIMIT 1))
  RETURNING arrival_base INTO v_base;
  SELECT COALESCE(max(number), 0) INTO v_last FROM wh_event_sequence;

  INSERT INTO wh_event_sequence (number, stream_id, version, seen_below, seen_open)
  SELECT v_last + n.place, n.stream_id, n.version, CASE WHEN n.place = n.total THEN v_base + 1 END,
    CASE WHEN n.place = n.total THEN '{}'::bigint[] END
  FROM (
    SELECT e.stream_id, e.version, row_number() OVER (ORDER BY e.position) AS place, count(*) OVER () AS total
    FROM wh_event_store e
    WHERE NOT EXISTS (SELECT FROM wh_event_sequence s WHERE s.stream_id = e.stream_id AND s.version = e.version)
  ) n;
  GET DIAGNOSTICS v_numbered = ROW_COUNT;
  RETURN v_last + v_numbered;
END;
$$;
