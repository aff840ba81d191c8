-- Ends a rebuild that is not wanted; the live rows stay as they are. Returns the generation that is gone, NULL for none.
CREATE OR REPLACE FUNCTION abandon_rebuild(p_perspective_name text)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
  v_known wh_perspectives;
BEGIN
  v_known := hold_perspective(p_perspective_name);
  IF v_known.building_generation IS NOT NULL THEN
    PERFORM drop_generation(p_perspective_name, v_known.building_generation);
    PERFORM resolve_event_types_again();
  END IF;
  RETURN v_known.building_generation;
END;
$$;
