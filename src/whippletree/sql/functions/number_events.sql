-- Numbers the events that became visible since the last numbering, in the order in which they were drawn, and returns
-- the last number. NULL when another session is about it: look again in a moment. Nobody waits here, neither for an open
-- transaction, whose events are numbered when they are there, nor for a writer.
-- Call it in a transaction of its own, which keeps the lock to its end.
CREATE OR REPLACE FUNCTION number_events()
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET work_mem = '64MB'
AS $$
DECLARE
  v_last wh_event_sequence%ROWTYPE;
  v_settings wh_settings%ROWTYPE;
  v_numbered bigint;
BEGIN
  PERFORM require_read_committed();
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    -- The events of this transaction are visible here and to nobody else.
    RAISE EXCEPTION 'this transaction has written already; events are numbered in a transaction of their own'
      USING ERRCODE = 'WH004';
  END IF;
  IF NOT pg_try_advisory_xact_lock(lock_key('feed')) THEN
    RETURN NULL;
  END IF;
  SELECT * INTO v_settings FROM wh_settings;
  IF v_settings.server_id <> (SELECT system_identifier FROM pg_control_system()) THEN
    RETURN rebase_arrivals();
  END IF;
  SELECT * INTO v_last FROM wh_event_sequence ORDER BY number DESC LIMIT 1;
  v_last.number := COALESCE(v_last.number, 0);

  -- One statement, hence one snapshot: what it sees is what it notes as seen.
  INSERT INTO wh_event_sequence (number, stream_id, version, seen_below, seen_open)
  SELECT v_last.number + n.place, n.stream_id, n.version,
    CASE WHEN n.place = n.total THEN pg_snapshot_xmax(pg_current_snapshot())::text::bigint + v_settings.arrival_base END,
    CASE WHEN n.place = n.total THEN open_arrivals(v_settings.arrival_base, pg_current_snapshot()) END
  FROM (
    SELECT e.stream_id, e.version, row_number() OVER (ORDER BY e.position) AS place, count(*) OVER () AS total
    FROM (
      SELECT l.stream_id, l.version, l.position FROM unnest(v_last.seen_open) AS o(arrival)
      JOIN wh_event_store l ON l.arrival = o.arrival
      UNION ALL
      SELECT f.stream_id, f.version, f.position FROM wh_event_store f WHERE f.arrival >= COALESCE(v_last.seen_below, 0)
    ) e
  ) n;
  GET DIAGNOSTICS v_numbered = ROW_COUNT;
  RETURN v_last.number + v_numbered;
END;
$$;
