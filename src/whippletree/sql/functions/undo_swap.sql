-- Brings back the rows from before the last swap, with the checkpoints that they had then: the events since are folded
-- into them again. What was live until now is kept in turn, so that undo can be undone. Returns the live generation.
CREATE OR REPLACE FUNCTION undo_swap(p_perspective_name text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
  v_known wh_perspectives;
BEGIN
  v_known := hold_perspective(p_perspective_name);
  IF v_known.previous_generation IS NULL THEN
    RAISE EXCEPTION '% has no rows from before a swap', p_perspective_name
      USING ERRCODE = 'WH002', HINT = 'They are kept from one swap to the next.';
  END IF;
  PERFORM make_live(p_perspective_name, v_known.previous_generation, p_as_of);
  PERFORM activate_perspective('perspective/' || p_perspective_name, p_as_of);
  RETURN v_known.previous_generation;
END;
$$;
