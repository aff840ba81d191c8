-- The partition of a stream. A documented hash, computed here and nowhere else, so that all instances agree for ever.
CREATE OR REPLACE FUNCTION partition_of(p_stream_id uuid, p_partition_count integer)
RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (('x' || md5(uuid_send(p_stream_id)))::bit(32)::bigint % p_partition_count)::integer;
