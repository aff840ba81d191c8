-- Makes the work of new events: a workers' row for every perspective and receptor that wants one of them, in each
-- stream, and a row of the receptor log for every event and receptor.
CREATE OR REPLACE FUNCTION activate_event_work(
  p_stream_ids uuid[], p_versions bigint[], p_event_ids uuid[], p_event_types text[], p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_work record;
BEGIN
  FOR v_work IN
    SELECT f.queue, array_agg(f.stream_id) AS stream_ids, array_agg(f.version - 1) AS heads,
      array_fill(p_as_of, ARRAY[count(*)::integer]) AS ready_at
    FROM (
      SELECT q.queue, e.stream_id, min(e.version) AS version
      FROM unnest(p_stream_ids, p_versions, p_event_types) AS e(stream_id, version, event_type)
      JOIN wh_event_types t USING (event_type)
      CROSS JOIN unnest(t.queues) AS q(queue)
      GROUP BY q.queue, e.stream_id
    ) f
    GROUP BY f.queue
    ORDER BY f.queue
  LOOP
    PERFORM activate_streams(v_work.queue, v_work.stream_ids, v_work.heads, v_work.ready_at, p_as_of);
  END LOOP;

  INSERT INTO wh_receptor_log (receptor_name, stream_id, version, event_id, created_at)
  SELECT substr(q.queue, 10), e.stream_id, e.version, e.event_id, p_as_of
  FROM unnest(p_stream_ids, p_versions, p_event_ids, p_event_types) AS e(stream_id, version, event_id, event_type)
  JOIN wh_event_types t USING (event_type)
  CROSS JOIN unnest(t.queues) AS q(queue)
  WHERE q.queue LIKE 'receptor/%';
END;
$$;
