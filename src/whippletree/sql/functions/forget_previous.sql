-- Removes the rows from before the last swap, which undo would bring back. Returns their generation, NULL for none.
CREATE OR REPLACE FUNCTION forget_previous(p_perspective_name text)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
  v_known wh_perspectives;
BEGIN
  v_known := hold_perspective(p_perspective_name);
  IF v_known.previous_generation IS NOT NULL THEN
    PERFORM drop_generation(p_perspective_name, v_known.previous_generation);
  END IF;
  RETURN v_known.previous_generation;
END;
$$;
