-- Makes the work of a perspective, or of its rebuild, on the streams that have events after its checkpoint already; with
-- p_since only where events arrived since then.
CREATE OR REPLACE FUNCTION activate_perspective(p_queue text, p_as_of timestamptz, p_since bigint DEFAULT 0)
RETURNS void
LANGUAGE plpgsql
-- All events are scanned; a few that came since are found by their arrival, however many there are.
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_checkpoints text := checkpoints_of(p_queue);
BEGIN
  INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)
  SELECT p_queue, e.stream_id, stream_hash(e.stream_id), p_as_of, COALESCE(c.version, 0), p_as_of
  FROM (
    SELECT e.stream_id, max(e.version) AS version FROM wh_event_store e
    -- A rebuild has the events of its perspective, also before appends know of it.
    WHERE e.arrival >= p_since
      AND e.event_type IN (SELECT t.event_type FROM wh_event_types t WHERE split_part(p_queue, '@', 1) = ANY (t.queues))
    GROUP BY e.stream_id
  ) e
  LEFT JOIN wh_checkpoints c ON c.perspective_name = v_checkpoints AND c.stream_id = e.stream_id
  WHERE e.version > COALESCE(c.version, 0)
  ORDER BY e.stream_id
  ON CONFLICT DO NOTHING;
END;
$$;
