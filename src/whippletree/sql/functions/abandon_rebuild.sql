-- Ends a rebuild that is not wanted; the live rows stay as they are, and drop_generations removes what was built. Returns
-- the generation, NULL for none.
CREATE OR REPLACE FUNCTION abandon_rebuild(p_perspective_name text)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '500ms'
AS $$
DECLARE
  v_known wh_perspectives := known_perspective(p_perspective_name);
BEGIN
  IF v_known.building_generation IS NOT NULL THEN
    PERFORM hold_perspective(v_known);
    UPDATE wh_perspectives SET building_generation = NULL WHERE perspective_name = p_perspective_name;
    IF v_known.key_type <> 'text' THEN
      PERFORM resolve_event_types_again();
    END IF;
  END IF;
  RETURN v_known.building_generation;
END;
$$;
