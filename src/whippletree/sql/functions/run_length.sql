-- How many messages of a stream may be handed out at once. A head that was handed out before goes alone, so that a guilty
-- message is found; one that has been handed out too often does not go at all, and its stream is parked.
CREATE OR REPLACE FUNCTION run_length(p_attempts integer, p_run_limit integer, p_max_attempts integer)
RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_attempts = 0 THEN p_run_limit WHEN p_attempts < p_max_attempts THEN 1 ELSE 0 END;
