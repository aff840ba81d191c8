-- Refuses an append to a stream that is not at the version the caller expects. The writers' rows are locked.
CREATE OR REPLACE FUNCTION require_versions(p_stream_ids uuid[], p_versions bigint[])
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_wrong record;
BEGIN
  IF cardinality(p_stream_ids) = 0 THEN
    RETURN;
  END IF;
  SELECT e.stream_id, e.version AS expected, COALESCE(w.event_version, 0) AS actual INTO v_wrong
  FROM unnest(p_stream_ids, p_versions) AS e(stream_id, version)
  LEFT JOIN wh_streams w ON w.stream_id = e.stream_id
  WHERE e.version <> COALESCE(w.event_version, 0)
  LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'stream % is at version %, not at % as expected', v_wrong.stream_id, v_wrong.actual, v_wrong.expected
      USING ERRCODE = 'WH005', DETAIL = v_wrong.actual::text,
        HINT = 'Read the stream again, decide again, and append at its present version.';
  END IF;
END;
$$;
