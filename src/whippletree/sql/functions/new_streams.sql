-- The streams that new messages, given as JSON, go to.
CREATE OR REPLACE FUNCTION new_streams(p_elements jsonb)
RETURNS uuid[]
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT COALESCE(array_agg(COALESCE(uuid_or_null(n.e ->> 'stream_id'), stream_id_of(n.e ->> 'stream_key'))), '{}')
    FROM jsonb_array_elements(CASE jsonb_typeof(p_elements) WHEN 'array' THEN p_elements ELSE '[]' END) AS n(e)
    WHERE jsonb_typeof(n.e) = 'object');
END;
$$;
