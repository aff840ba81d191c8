-- The id of the stream that a text key names. A UUID written as text names that very stream. Not STRICT: see uuid_or_null.
CREATE OR REPLACE FUNCTION stream_id_of(p_stream_key text)
RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN is_uuid(p_stream_key) THEN p_stream_key::uuid ELSE md5(p_stream_key)::uuid END;
