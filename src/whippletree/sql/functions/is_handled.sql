-- Whether a perspective or a receptor has gone past a version of a stream.
CREATE OR REPLACE FUNCTION is_handled(p_queue text, p_stream_id uuid, p_version bigint)
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE split_part(p_queue, '/', 1)
    WHEN 'perspective' THEN has_applied(substr(p_queue, 13), p_stream_id, p_version)
    ELSE NOT EXISTS (SELECT FROM wh_receptor_log l
      WHERE l.receptor_name = substr(p_queue, 10) AND l.stream_id = p_stream_id
        AND l.version = p_version AND l.processed_at IS NULL AND l.skipped IS NULL)
  END;
$$;
