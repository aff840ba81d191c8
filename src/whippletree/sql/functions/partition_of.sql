-- The partition of a stream: of its hash, the remainder by the number of partitions.
CREATE OR REPLACE FUNCTION partition_of(p_stream_hash integer, p_partition_count integer)
RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN p_stream_hash % p_partition_count;
