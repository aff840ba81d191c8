-- The streams in which the rows kept for undo lack events: those that moved on since the swap, and those with work.
CREATE OR REPLACE FUNCTION streams_since_swap(p_known wh_perspectives)
RETURNS TABLE (stream_id uuid)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT l.stream_id
  FROM wh_checkpoints l
  LEFT JOIN wh_checkpoints k ON k.stream_id = l.stream_id
    AND k.perspective_name = checkpoint_name(p_known.perspective_name, p_known.previous_generation)
  WHERE l.perspective_name = checkpoint_name(p_known.perspective_name, p_known.live_generation)
    AND l.version > COALESCE(k.version, 0)
  UNION
  SELECT s.stream_id FROM wh_active_streams s WHERE s.queue = 'perspective/' || p_known.perspective_name;
$$;
