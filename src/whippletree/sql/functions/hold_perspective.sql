-- Keeps a perspective's rows, work and checkpoints as they are until the transaction ends, to change which generation is
-- what. Appends and folds that are under way end first, and new ones wait: whatever takes long is done before. When that does
-- not come to an end, appends go on for a moment before it is attempted again, so many times in all.
CREATE OR REPLACE FUNCTION hold_perspective(p_known wh_perspectives, p_attempts integer DEFAULT 1)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- Appends make no work for one that follows the feed. For others the lock on event types comes before that on the
  -- perspective, as in an append with an inline perspective.
  IF p_known.key_type <> 'text' THEN
    PERFORM pg_advisory_xact_lock(lock_key('event types'));
  END IF;
  PERFORM pg_advisory_xact_lock(lock_key('perspective:' || p_known.perspective_name));
EXCEPTION WHEN lock_not_available THEN
  IF p_attempts <= 1 THEN
    RAISE;
  END IF;
  PERFORM pg_sleep(0.5);
  PERFORM hold_perspective(p_known, p_attempts - 1);
END;
$$;
