-- What a stream hashes to. A documented hash, computed here and nowhere else, so that all instances agree for ever.
CREATE OR REPLACE FUNCTION stream_hash(p_stream_id uuid)
RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ('x' || md5(uuid_send(p_stream_id)))::bit(32)::integer & 2147483647;
