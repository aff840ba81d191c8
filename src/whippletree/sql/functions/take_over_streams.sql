-- Takes the work on streams from whoever has it, for an inline perspective: the appending transaction does it itself.
-- Whoever held a lease is refused when it reports. Returns from which version on each stream is to be folded.
CREATE OR REPLACE FUNCTION take_over_streams(p_perspective_name text, p_stream_ids uuid[])
RETURNS TABLE (stream_id uuid, version bigint)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
  PERFORM lock_for_folding(p_perspective_name, p_stream_ids);
  RETURN QUERY
  WITH taken AS (
    DELETE FROM wh_active_streams s
    WHERE s.queue = 'perspective/' || p_perspective_name AND s.stream_id = ANY (p_stream_ids)
    RETURNING s.stream_id, s.head_version
  )
  SELECT t.stream_id, greatest(t.head_version, COALESCE(c.version, 0))
  FROM taken t
  LEFT JOIN wh_checkpoints c ON c.perspective_name = checkpoints_of('perspective/' || p_perspective_name) AND c.stream_id = t.stream_id;
END;
$$;
