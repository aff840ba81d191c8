-- Why a perspective does not have an event of a stream yet, in one sentence; NULL when it has.
CREATE OR REPLACE FUNCTION why_not_applied(
  p_perspective_name text, p_stream_id uuid, p_version bigint, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS text
LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT format('%s is at version %s of stream %s, the event is version %s; %s', p_perspective_name,
    COALESCE((SELECT c.version FROM wh_checkpoints c
      WHERE c.perspective_name = checkpoints_of('perspective/' || p_perspective_name) AND c.stream_id = p_stream_id), 0),
    described_stream(p_stream_id), p_version,
    COALESCE((SELECT string_agg(why, '; ') FROM why_stream('perspective/' || p_perspective_name, p_stream_id, p_as_of) AS why),
      'it is about to be applied'))
  WHERE NOT has_applied(p_perspective_name, p_stream_id, p_version);
$$;
