-- Makes the rebuilt rows the live ones, and keeps the old ones for undo; those of the swap before are dropped by
-- drop_generations. Refused while the rebuild is behind (require_caught_up), which is found out before anybody has to wait
-- and once more when nothing moves.
CREATE OR REPLACE FUNCTION swap_rebuild(
  p_perspective_name text, p_behind bigint DEFAULT 0, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '500ms'
AS $$
DECLARE
  v_known wh_perspectives := known_perspective(p_perspective_name);
BEGIN
  IF v_known.building_generation IS NULL THEN
    RAISE EXCEPTION '% is not being rebuilt', p_perspective_name
      USING ERRCODE = 'WH002', HINT = format('Begin with `whippletree perspectives rebuild %s`.', p_perspective_name);
  END IF;
  PERFORM require_caught_up(v_known, p_behind, p_as_of);
  -- Before appends have to wait: the view may have long readers.
  PERFORM show_rows(v_known, v_known.building_generation);
  PERFORM hold_perspective(v_known);
  PERFORM require_caught_up(v_known, p_behind, p_as_of);
  PERFORM make_live(v_known, v_known.building_generation, p_as_of);
  RETURN v_known.building_generation;
END;
$$;
