-- The id of the stream that a text key names. A UUID written as text names that very stream.
CREATE OR REPLACE FUNCTION stream_id_of(p_stream_key text)
RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE
  WHEN p_stream_key ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p_stream_key::uuid
  ELSE md5(p_stream_key)::uuid
END;
