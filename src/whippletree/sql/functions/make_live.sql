-- Makes a generation the live one, together with its checkpoints and its work; the caller holds the perspective. The
-- one that was live is kept as it is, with its checkpoints. Whoever holds a lease on either loses it, so nothing that was
-- folded onto the one can be committed to the other.
CREATE OR REPLACE FUNCTION make_live(p_perspective_name text, p_generation integer, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_queue text := 'perspective/' || p_perspective_name;
  v_live integer := (SELECT live_generation FROM wh_perspectives WHERE perspective_name = p_perspective_name);
BEGIN
  -- In key order, and before the checkpoints are looked at: a report that is under way ends first.
  PERFORM FROM (SELECT FROM wh_active_streams s WHERE s.queue IN (v_queue, v_queue || '@' || p_generation)
    ORDER BY s.queue, s.stream_id FOR UPDATE) s;
  DELETE FROM wh_active_streams s WHERE s.queue = v_queue;
  UPDATE wh_active_streams s
  SET queue = v_queue, moved_at = p_as_of, ready_at = CASE WHEN s.instance_id IS NULL THEN s.ready_at ELSE p_as_of END,
    attempts = CASE WHEN s.instance_id IS NULL THEN s.attempts ELSE s.attempts - 1 END,
    instance_id = NULL, lease_expiry = NULL, lease_token = NULL, leased_through = NULL
  WHERE s.queue = v_queue || '@' || p_generation;

  UPDATE wh_checkpoints c SET perspective_name = p_perspective_name || '@' || v_live
  WHERE c.perspective_name = p_perspective_name;
  UPDATE wh_checkpoints c SET perspective_name = p_perspective_name
  WHERE c.perspective_name = p_perspective_name || '@' || p_generation;

  UPDATE wh_perspectives
  SET live_generation = p_generation, previous_generation = v_live,
    building_generation = NULLIF(building_generation, p_generation)
  WHERE perspective_name = p_perspective_name;
  PERFORM resolve_event_types_again();
  PERFORM show_live_rows(p_perspective_name);
  PERFORM wake_waiting_instances();
END;
$$;
