-- Says which stored events a receptor handles, from now on: history is not handled again. Doing it again changes
-- nothing and waits for nobody. True when something changed.
CREATE OR REPLACE FUNCTION register_receptor(p_receptor_name text, p_patterns text[])
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM require_patterns(p_patterns);
  IF ARRAY(SELECT event_type_pattern FROM wh_receptor_mappings WHERE receptor_name = p_receptor_name ORDER BY 1)
    = ARRAY(SELECT DISTINCT unnest(p_patterns) ORDER BY 1) THEN
    RETURN false;
  END IF;
  PERFORM pg_advisory_xact_lock(lock_key('event types'));
  DELETE FROM wh_receptor_mappings WHERE receptor_name = p_receptor_name;
  INSERT INTO wh_receptor_mappings SELECT p_receptor_name, p FROM (SELECT DISTINCT unnest(p_patterns) AS p) d;
  PERFORM resolve_event_types_again();
  RETURN true;
END;
$$;
