-- Says which events a perspective folds. Streams that have such events already are worked from where its checkpoint
-- stands. Doing it again changes nothing and waits for nobody. True when something changed.
CREATE OR REPLACE FUNCTION register_perspective(
  p_perspective_name text, p_patterns text[], p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM require_patterns(p_patterns);
  IF ARRAY(SELECT event_type_pattern FROM wh_perspective_mappings WHERE perspective_name = p_perspective_name ORDER BY 1)
    = ARRAY(SELECT DISTINCT unnest(p_patterns) ORDER BY 1) THEN
    RETURN false;
  END IF;
  PERFORM pg_advisory_xact_lock(lock_key('event types'));
  DELETE FROM wh_perspective_mappings WHERE perspective_name = p_perspective_name;
  INSERT INTO wh_perspective_mappings SELECT p_perspective_name, p FROM (SELECT DISTINCT unnest(p_patterns) AS p) d;
  PERFORM resolve_event_types_again();
  PERFORM activate_perspective(q, p_as_of) FROM event_queues('perspective/' || p_perspective_name) q;
  PERFORM wake_waiting_instances();
  RETURN true;
END;
$$;
