-- Makes the rebuilt rows the live ones, and keeps the old ones for undo. Refused while more than p_behind streams have
-- events in the live rows that the rebuild does not have: readers would see those streams go back for a moment.
CREATE OR REPLACE FUNCTION swap_rebuild(
  p_perspective_name text, p_behind bigint DEFAULT 0, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
  v_known wh_perspectives;
  v_behind record;
  v_count bigint;
BEGIN
  v_known := hold_perspective(p_perspective_name);
  IF v_known.building_generation IS NULL THEN
    RAISE EXCEPTION '% is not being rebuilt', p_perspective_name
      USING ERRCODE = 'WH002', HINT = format('Begin with `whippletree perspectives rebuild %s`.', p_perspective_name);
  END IF;
  SELECT count(*) INTO v_count FROM streams_behind(p_perspective_name);
  IF v_count > p_behind THEN
    SELECT * INTO v_behind FROM streams_behind(p_perspective_name) LIMIT 1;
    RAISE EXCEPTION 'the rebuild of % is behind the live rows in % streams; in % it has version %, they have version %. %',
      p_perspective_name, v_count, described_stream(v_behind.stream_id), v_behind.built, v_behind.live,
      COALESCE((SELECT string_agg(why, '; ') FROM why_stream(
        'perspective/' || p_perspective_name || '@' || v_known.building_generation, v_behind.stream_id, p_as_of) AS why),
        'It is about to be applied') USING ERRCODE = 'WH007';
  END IF;
  IF v_known.previous_generation IS NOT NULL THEN
    PERFORM drop_generation(p_perspective_name, v_known.previous_generation);
  END IF;
  PERFORM make_live(p_perspective_name, v_known.building_generation, p_as_of);
  RETURN v_known.building_generation;
END;
$$;
