-- Makes sure that every stream stored into has its workers' row, and keeps that row until this transaction ends.
-- KEY SHARE lets claims and completions go on; only the removal of a drained stream waits for us, or we for it.
-- Only what is not there is inserted: an INSERT would wait for whoever is just moving the row, even to do nothing.
-- What somebody else inserts in between is locked in another turn. A new row starts just before the first version
-- stored, so that no claim walks over the dead rows of finished messages. Returns whether a row is new: only then is there
-- anything that no worker knows of.
CREATE OR REPLACE FUNCTION activate_streams(
  p_queue text, p_stream_ids uuid[], p_head_versions bigint[], p_ready_at timestamptz[], p_as_of timestamptz)
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_stream_ids uuid[];
  v_head_versions bigint[];
  v_ready_at timestamptz[];
  v_inserted integer;
  v_new boolean := false;
BEGIN
  LOOP
    SELECT array_agg(a.stream_id), array_agg(a.head_version), array_agg(a.ready_at)
    INTO v_stream_ids, v_head_versions, v_ready_at
    FROM (
      SELECT * FROM unnest(p_stream_ids, p_head_versions, p_ready_at) AS u(stream_id, head_version, ready_at) ORDER BY 1
    ) a
    LEFT JOIN LATERAL (
      SELECT true AS is_there FROM wh_active_streams s WHERE s.queue = p_queue AND s.stream_id = a.stream_id FOR KEY SHARE
    ) s ON true
    WHERE s.is_there IS NULL;
    EXIT WHEN v_stream_ids IS NULL;

    INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)
    SELECT p_queue, a.stream_id, stream_hash(a.stream_id), a.ready_at, a.head_version, p_as_of
    FROM unnest(v_stream_ids, v_head_versions, v_ready_at) AS a(stream_id, head_version, ready_at)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;
    v_new := v_new OR v_inserted > 0;
    EXIT WHEN v_inserted = cardinality(v_stream_ids);
  END LOOP;
  RETURN v_new;
END;
$$;
