-- The name under which the checkpoints of a perspective's queue are kept: for perspective/NAME that of the live generation,
-- for perspective/NAME@GENERATION, the queue of a rebuild, that of its own. NULL for any other queue.
CREATE OR REPLACE FUNCTION checkpoints_of(p_queue text)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE WHEN p_queue LIKE 'perspective/%@%' THEN substr(p_queue, 13)
    WHEN p_queue LIKE 'perspective/%' THEN checkpoint_name(substr(p_queue, 13), live_generation(substr(p_queue, 13))) END;
$$;
