-- A stream as its users know it: by its key, else by its id.
CREATE OR REPLACE FUNCTION described_stream(p_stream_id uuid)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT COALESCE((SELECT s.stream_key FROM wh_streams s WHERE s.stream_id = p_stream_id), p_stream_id::text);
$$;
