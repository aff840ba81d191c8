-- Streams as their users know them, in the order of the ids given.
CREATE OR REPLACE FUNCTION stream_names(p_stream_ids uuid[])
RETURNS text[]
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT array_agg(described_stream(i.stream_id) ORDER BY i.place)
  FROM unnest(p_stream_ids) WITH ORDINALITY AS i(stream_id, place);
$$;
