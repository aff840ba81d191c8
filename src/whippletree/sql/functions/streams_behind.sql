-- The streams of which the live rows have events that the rebuild does not have yet. They are among those that the rebuild
-- has work on, which are few when it has caught up.
CREATE OR REPLACE FUNCTION streams_behind(p_perspective_name text)
RETURNS TABLE (stream_id uuid, built bigint, live bigint)
LANGUAGE sql STABLE
-- Whatever the planner believes of the queue: appends wait for this.
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
  SELECT l.stream_id, COALESCE(b.version, 0), l.version
  FROM wh_perspectives p
  JOIN wh_active_streams s ON s.queue = 'perspective/' || p.perspective_name || '@' || p.building_generation
  JOIN wh_checkpoints l
    ON l.perspective_name = checkpoint_name(p.perspective_name, p.live_generation) AND l.stream_id = s.stream_id
  LEFT JOIN wh_checkpoints b
    ON b.perspective_name = checkpoint_name(p.perspective_name, p.building_generation) AND b.stream_id = s.stream_id
  WHERE p.perspective_name = p_perspective_name AND l.version > COALESCE(b.version, 0)
    -- A checkpoint also moves over events that the perspective does not fold.
    AND EXISTS (SELECT FROM wh_event_store e JOIN wh_event_types t ON t.event_type = e.event_type
      WHERE e.stream_id = l.stream_id AND e.version > COALESCE(b.version, 0) AND e.version <= l.version
        AND s.queue = ANY (t.queues))
  ORDER BY l.stream_id;
$$;
