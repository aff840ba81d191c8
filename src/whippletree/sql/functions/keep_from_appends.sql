-- Keeps new events away from a stream until the transaction ends. Returns its last version, NULL when it is unknown.
CREATE OR REPLACE FUNCTION keep_from_appends(p_stream_id uuid)
RETURNS bigint
LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT w.event_version FROM wh_streams w WHERE w.stream_id = p_stream_id FOR NO KEY UPDATE;
$$;
