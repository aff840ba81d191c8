-- Whether a perspective has an event of a stream: one probe, cheap enough to be asked again and again.
CREATE OR REPLACE FUNCTION has_applied(p_perspective_name text, p_stream_id uuid, p_version bigint)
RETURNS boolean
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM wh_checkpoints c
    WHERE c.perspective_name = checkpoints_of('perspective/' || p_perspective_name) AND c.stream_id = p_stream_id AND c.version >= p_version);
$$;
