-- Keeps a perspective's rows, work and checkpoints as they are until the transaction ends, to change which generation is
-- what. Appends and folds that are under way end first; the lock on event types comes before that on the perspective, as
-- in an append with an inline perspective. Refuses a perspective that has no rows of a stream each.
CREATE OR REPLACE FUNCTION hold_perspective(p_perspective_name text)
RETURNS wh_perspectives
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_known wh_perspectives;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_key('event types'));
  PERFORM pg_advisory_xact_lock(lock_key('perspective:' || p_perspective_name));
  SELECT * INTO v_known FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no perspective of the name % keeps rows', p_perspective_name
      USING ERRCODE = 'WH006', HINT = 'One that writes its own tables is rebuilt by its own means.';
  ELSIF v_known.key_type <> 'uuid' THEN
    RAISE EXCEPTION '% chooses its keys, and follows the feed', p_perspective_name
      USING ERRCODE = 'WH002', HINT = 'Only the rows of a perspective that folds each stream into a row of its own can be rebuilt beside the live ones.';
  END IF;
  RETURN v_known;
END;
$$;
