-- Begins to build a perspective's rows again, beside the live ones: tables of the next generation, and work on every
-- stream in a queue of its own, perspective/NAME@GENERATION, which those who work the perspective do. Events that come
-- meanwhile reach both. One that follows the feed is divided into parts, and then followed a second time. Returns the
-- generation.
CREATE OR REPLACE FUNCTION start_rebuild(p_perspective_name text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '500ms'
AS $$
DECLARE
  v_known wh_perspectives := known_perspective(p_perspective_name);
  v_generation integer := v_known.last_generation + 1;
  v_queue text := 'perspective/' || p_perspective_name || '@' || v_generation;
  v_since bigint := earliest_open_arrival();
BEGIN
  IF v_known.building_generation IS NOT NULL THEN
    RAISE EXCEPTION '% is being rebuilt already, as generation %', p_perspective_name, v_known.building_generation
      USING ERRCODE = 'WH002', HINT = 'Swap that rebuild, or abandon it.';
  END IF;
  INSERT INTO wh_perspective_generations VALUES (p_perspective_name, v_generation, v_known.columns);
  IF v_known.key_type = 'none' THEN
    PERFORM copy_tables(v_known, v_generation);
  ELSE
    PERFORM make_rows_table(p_perspective_name, v_generation, v_known.key_type, v_known.columns,
      declared_indexes(rows_table(p_perspective_name, v_known.live_generation)));
  END IF;
  IF v_known.key_type = 'text' THEN
    -- Also for the live rows, should nobody have followed for them yet: a swap lets them go on from here.
    PERFORM register_subscriber(split_part(v_queue, '@', 1), 0, true, v_known.patterns, p_as_of);
    PERFORM divide_rebuild(v_known, v_generation, p_as_of);
  ELSE
    -- Nobody knows of this queue yet, so it is filled while appends go on; what came since is added when they wait.
    PERFORM activate_perspective(v_queue, p_as_of);
  END IF;

  PERFORM hold_perspective(v_known, 5);
  UPDATE wh_perspectives SET building_generation = v_generation, last_generation = v_generation
  WHERE perspective_name = p_perspective_name;
  IF v_known.key_type <> 'text' THEN
    PERFORM resolve_event_types_again();
    PERFORM activate_perspective(v_queue, p_as_of, v_since);
  END IF;
  PERFORM wake_waiting_instances();
  PERFORM pg_notify(feed_channel(), '');
  RETURN v_generation;
END;
$$;
