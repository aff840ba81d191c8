-- Removes every generation of a perspective that is neither live, nor built, nor kept for undo: its rows, its work and its
-- checkpoints. Nobody writes them any more, so nobody has to wait. Returns how many there were.
CREATE OR REPLACE FUNCTION drop_generations(p_perspective_name text)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '500ms'
SET client_min_messages = warning
AS $$
DECLARE
  v_known wh_perspectives := known_perspective(p_perspective_name);
  v_queue text;
  v_count integer := 0;
  v_generation integer;
BEGIN
  FOR v_generation IN
    SELECT g.generation FROM wh_perspective_generations g
    WHERE g.perspective_name = p_perspective_name AND g.generation <> ALL (array_remove(
      ARRAY[v_known.live_generation, v_known.building_generation, v_known.previous_generation], NULL))
  LOOP
    v_queue := 'perspective/' || p_perspective_name || '@' || v_generation;
    -- In key order: a report that is under way ends first.
    PERFORM FROM (SELECT FROM wh_active_streams s WHERE s.queue = v_queue ORDER BY s.stream_id FOR UPDATE) s;
    DELETE FROM wh_active_streams s WHERE s.queue = v_queue;
    DELETE FROM wh_checkpoints c WHERE c.perspective_name = checkpoint_name(p_perspective_name, v_generation);
    DELETE FROM wh_subscribers s WHERE s.subscriber_name = v_queue OR starts_with(s.subscriber_name, v_queue || '/');
    EXECUTE format('DROP TABLE IF EXISTS %I', keys_table(p_perspective_name, v_generation));
    IF v_known.key_type = 'none' THEN
      PERFORM drop_tables(p_perspective_name, v_generation);
    ELSE
      EXECUTE format('DROP TABLE %I', rows_table(p_perspective_name, v_generation));
    END IF;
    DELETE FROM wh_perspective_generations g
    WHERE g.perspective_name = p_perspective_name AND g.generation = v_generation;
    v_count := v_count + 1;
  END LOOP;
  RETURN v_count;
END;
$$;
