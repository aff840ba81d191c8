-- Begins to build a perspective's rows again, beside the live ones: a table of the next generation, and work on every
-- stream in a queue of its own, perspective/NAME@GENERATION, which those who work the perspective do. Events that come
-- meanwhile reach both. Returns the generation.
CREATE OR REPLACE FUNCTION start_rebuild(p_perspective_name text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
  v_known wh_perspectives;
  v_generation integer;
BEGIN
  v_known := hold_perspective(p_perspective_name);
  IF v_known.building_generation IS NOT NULL THEN
    RAISE EXCEPTION '% is being rebuilt already, as generation %', p_perspective_name, v_known.building_generation
      USING ERRCODE = 'WH002', HINT = 'Swap that rebuild, or abandon it.';
  END IF;
  v_generation := v_known.last_generation + 1;
  PERFORM make_rows_table(p_perspective_name, v_generation, v_known.key_type, v_known.columns,
    declared_indexes(rows_table(p_perspective_name, v_known.live_generation)));
  UPDATE wh_perspectives SET building_generation = v_generation, last_generation = v_generation
  WHERE perspective_name = p_perspective_name;
  PERFORM resolve_event_types_again();
  PERFORM activate_perspective('perspective/' || p_perspective_name || '@' || v_generation, p_as_of);
  PERFORM wake_waiting_instances();
  RETURN v_generation;
END;
$$;
