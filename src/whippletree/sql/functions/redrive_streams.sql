-- Resumes the streams that are parked or wait for a retry, each at its head, in order; of one queue, of one stream, or
-- with a text in their error, as far as these are given. Returns how many.
CREATE OR REPLACE FUNCTION redrive_streams(
  p_queue text DEFAULT NULL, p_stream_id uuid DEFAULT NULL, p_error text DEFAULT NULL,
  p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count bigint;
BEGIN
  WITH stopped AS MATERIALIZED (
    SELECT s.queue, s.stream_id FROM wh_active_streams s
    WHERE NOT is_ready(s.ready_at, s.lease_expiry, p_as_of) AND s.instance_id IS NULL AND s.error IS NOT NULL
      AND (p_queue IS NULL OR s.queue = p_queue) AND (p_stream_id IS NULL OR s.stream_id = p_stream_id)
      AND (p_error IS NULL OR position(p_error IN s.error) > 0)
    ORDER BY s.queue, s.stream_id
    FOR NO KEY UPDATE
  )
  UPDATE wh_active_streams s
  SET ready_at = p_as_of, attempts = 0, moved_at = p_as_of
  FROM stopped p
  WHERE s.queue = p.queue AND s.stream_id = p.stream_id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count > 0 THEN
    PERFORM wake_waiting_instances();
  END IF;
  RETURN v_count;
END;
$$;
