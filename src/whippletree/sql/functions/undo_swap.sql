-- Brings back the rows from before the last swap, with the checkpoints that they had then: the events since are folded
-- into them again. What was live until now is kept in turn, so that undo can be undone. Returns the live generation.
CREATE OR REPLACE FUNCTION undo_swap(p_perspective_name text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '500ms'
AS $$
DECLARE
  v_known wh_perspectives := known_perspective(p_perspective_name);
  v_since bigint := earliest_open_arrival();
  v_streams uuid[];
BEGIN
  IF v_known.previous_generation IS NULL THEN
    RAISE EXCEPTION '% has no rows from before a swap', p_perspective_name
      USING ERRCODE = 'WH002', HINT = 'They are kept from one swap to the next.';
  END IF;
  PERFORM show_rows(v_known, v_known.previous_generation);
  IF v_known.key_type <> 'text' THEN
    v_streams := ARRAY(SELECT stream_id FROM streams_since_swap(v_known));
  END IF;
  PERFORM hold_perspective(v_known);
  PERFORM make_live(v_known, v_known.previous_generation, p_as_of);
  IF v_known.key_type <> 'text' THEN
    INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)
    SELECT 'perspective/' || p_perspective_name, s.stream_id, stream_hash(s.stream_id), p_as_of, COALESCE(c.version, 0),
      p_as_of
    FROM unnest(v_streams) AS s(stream_id)
    LEFT JOIN wh_checkpoints c ON c.stream_id = s.stream_id
      AND c.perspective_name = checkpoint_name(p_perspective_name, v_known.previous_generation)
    ORDER BY s.stream_id;
    PERFORM activate_perspective('perspective/' || p_perspective_name, p_as_of, v_since);
  END IF;
  RETURN v_known.previous_generation;
END;
$$;
