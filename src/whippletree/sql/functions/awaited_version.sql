-- The last of a stream's versions that a perspective folds: when it is applied, all of them are.
CREATE OR REPLACE FUNCTION awaited_version(p_perspective_name text, p_stream_id uuid, p_versions bigint[])
RETURNS bigint
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_seen bigint;
  v_folded bigint;
BEGIN
  SELECT max(e.version), max(e.version) FILTER (WHERE 'perspective/' || p_perspective_name = ANY (t.queues))
  INTO v_seen, v_folded
  FROM wh_event_store e LEFT JOIN wh_event_types t ON t.event_type = e.event_type
  WHERE e.stream_id = p_stream_id AND e.version = ANY (p_versions);
  IF v_folded IS NULL THEN
    RAISE EXCEPTION '%', CASE
      WHEN v_seen IS NULL THEN 'these events are not committed; commit before you wait for a perspective'
      WHEN EXISTS (SELECT FROM wh_perspective_mappings m WHERE m.perspective_name = p_perspective_name)
        THEN format('%s folds none of these events', p_perspective_name)
      ELSE format('no perspective of the name %s is registered', p_perspective_name) END
      USING ERRCODE = 'WH006';
  END IF;
  RETURN v_folded;
END;
$$;
