-- Says which events a perspective folds. Streams that have such events already are worked from where its checkpoint
-- stands. Doing it again changes nothing and waits for nobody. True when something changed.
CREATE OR REPLACE FUNCTION register_perspective(
  p_perspective_name text, p_patterns text[], p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_queue text := 'perspective/' || p_perspective_name;
BEGIN
  PERFORM require_patterns(p_patterns);
  IF ARRAY(SELECT event_type_pattern FROM wh_perspective_mappings WHERE perspective_name = p_perspective_name ORDER BY 1)
    = ARRAY(SELECT DISTINCT unnest(p_patterns) ORDER BY 1) THEN
    RETURN false;
  END IF;
  PERFORM pg_advisory_xact_lock(lock_key('event types'));
  DELETE FROM wh_perspective_mappings WHERE perspective_name = p_perspective_name;
  INSERT INTO wh_perspective_mappings SELECT p_perspective_name, p FROM (SELECT DISTINCT unnest(p_patterns) AS p) d;
  UPDATE wh_event_types t SET queues = queues_of_type(t.event_type) WHERE t.queues <> queues_of_type(t.event_type);

  INSERT INTO wh_active_streams (queue, stream_id, partition_number, ready_at, head_version, moved_at)
  SELECT v_queue, e.stream_id, partition_of(e.stream_id, s.partition_count), p_as_of, COALESCE(c.version, 0), p_as_of
  FROM wh_settings s, (
    SELECT e.stream_id, max(e.version) AS version FROM wh_event_store e
    WHERE e.event_type IN (SELECT t.event_type FROM wh_event_types t WHERE v_queue = ANY (t.queues))
    GROUP BY e.stream_id
  ) e
  LEFT JOIN wh_checkpoints c ON c.perspective_name = p_perspective_name AND c.stream_id = e.stream_id
  WHERE e.version > COALESCE(c.version, 0)
  ORDER BY e.stream_id
  ON CONFLICT DO NOTHING;
  PERFORM wake_waiting_instances();
  RETURN true;
END;
$$;
