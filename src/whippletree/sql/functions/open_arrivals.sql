-- The arrivals of transactions that had not ended at a snapshot.
CREATE OR REPLACE FUNCTION open_arrivals(p_base bigint, p_snapshot pg_snapshot)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(SELECT x::text::bigint + p_base FROM pg_snapshot_xip(p_snapshot) AS x);
