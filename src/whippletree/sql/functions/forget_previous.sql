-- Gives up the rows from before the last swap, which undo would bring back; drop_generations removes them. Returns their
-- generation, NULL for none.
CREATE OR REPLACE FUNCTION forget_previous(p_perspective_name text)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '500ms'
AS $$
DECLARE
  v_known wh_perspectives := known_perspective(p_perspective_name);
BEGIN
  UPDATE wh_perspectives SET previous_generation = NULL WHERE perspective_name = p_perspective_name;
  RETURN v_known.previous_generation;
END;
$$;
