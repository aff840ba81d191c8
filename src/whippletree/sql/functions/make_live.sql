-- Makes a generation the live one; the caller holds the perspective, and its view shows the generation already. The one
-- that was live is kept as it is, with its checkpoints. Whoever holds a lease on either loses it, so nothing that was
-- folded onto the one can be committed to the other. Only what is under way is touched, however many streams there are.
CREATE OR REPLACE FUNCTION make_live(p_known wh_perspectives, p_generation integer, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_queue text := 'perspective/' || p_known.perspective_name;
BEGIN
  IF p_known.key_type = 'text' THEN
    PERFORM exchange_followers(p_known, p_generation, p_as_of);
  ELSE
    -- In key order: a report that is under way ends first.
    PERFORM FROM (SELECT FROM wh_active_streams s WHERE s.queue IN (v_queue, v_queue || '@' || p_generation)
      ORDER BY s.queue, s.stream_id FOR UPDATE) s;
    DELETE FROM wh_active_streams s WHERE s.queue = v_queue;
    UPDATE wh_active_streams s
    SET queue = v_queue, moved_at = p_as_of, ready_at = CASE WHEN s.instance_id IS NULL THEN s.ready_at ELSE p_as_of END,
      attempts = CASE WHEN s.instance_id IS NULL THEN s.attempts ELSE s.attempts - 1 END,
      instance_id = NULL, lease_expiry = NULL, lease_token = NULL, leased_through = NULL
    WHERE s.queue = v_queue || '@' || p_generation;
  END IF;
  IF p_known.key_type = 'none' THEN
    PERFORM exchange_tables(p_known, p_generation);
  END IF;

  UPDATE wh_perspectives
  SET live_generation = p_generation, previous_generation = live_generation,
    building_generation = NULLIF(building_generation, p_generation)
  WHERE perspective_name = p_known.perspective_name;
  IF p_known.key_type <> 'text' THEN
    PERFORM resolve_event_types_again();
  END IF;
  PERFORM wake_waiting_instances();
END;
$$;
