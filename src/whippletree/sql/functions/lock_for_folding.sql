-- Keeps streams of a perspective for whoever is about to write its rows, until the transaction ends: an append that folds
-- inline and a worker take the same locks in the same order, and do not wait for each other in a circle.
CREATE OR REPLACE FUNCTION lock_for_folding(p_perspective_name text, p_stream_ids uuid[])
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  -- Before the streams: a swap takes both, and in this order.
  PERFORM pg_advisory_xact_lock_shared(lock_key('perspective:' || p_perspective_name));
  PERFORM lock_streams(array_fill('perspective/' || p_perspective_name, ARRAY[cardinality(p_stream_ids)]), p_stream_ids);
END;
$$;
