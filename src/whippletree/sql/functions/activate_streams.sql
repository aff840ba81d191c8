-- Makes sure that every stream stored into has its workers' row, and keeps that row until this transaction ends.
-- KEY SHARE lets claims and completions go on; only the removal of a drained stream waits for us, or we for it.
-- Only what is not there is inserted: an INSERT would wait for whoever is just moving the row, even to do nothing.
-- A row removed between the insert and the lock is inserted again. A new row starts just before the first version
-- stored, so that no claim walks over the dead rows of finished messages.
CREATE OR REPLACE FUNCTION activate_streams(
  p_queue text, p_stream_ids uuid[], p_head_versions bigint[], p_ready_at timestamptz[], p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_present integer;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM require_recent_snapshot();
  END IF;
  LOOP
    INSERT INTO wh_active_streams (queue, stream_id, partition_number, ready_at, head_version, moved_at)
    -- Asked in this very statement, which waits for a change of their number.
    SELECT p_queue, a.stream_id, partition_of(a.stream_id, (SELECT partition_count FROM wh_settings)), a.ready_at,
      a.head_version, p_as_of
    -- The queue goes with each stream, so that no planner can read all of it: see lease_streams.
    FROM unnest(array_fill(p_queue, ARRAY[cardinality(p_stream_ids)]), p_stream_ids, p_head_versions, p_ready_at)
      AS a(queue, stream_id, head_version, ready_at)
    WHERE NOT EXISTS (SELECT FROM wh_active_streams s WHERE s.queue = a.queue AND s.stream_id = a.stream_id OFFSET 0)
    ORDER BY a.stream_id
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_present = ROW_COUNT;
    -- What this transaction inserted nobody else can remove.
    EXIT WHEN v_present = cardinality(p_stream_ids);

    PERFORM
    FROM (SELECT unnest(p_stream_ids) AS stream_id ORDER BY 1) a
    CROSS JOIN LATERAL (
      SELECT FROM wh_active_streams s WHERE s.queue = p_queue AND s.stream_id = a.stream_id FOR KEY SHARE
    ) s;
    GET DIAGNOSTICS v_present = ROW_COUNT;
    EXIT WHEN v_present = cardinality(p_stream_ids);
  END LOOP;
END;
$$;
