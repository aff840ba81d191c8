-- Resumes a parked or waiting stream at its head, in order, with all its attempts before it. False when it is not there.
CREATE OR REPLACE FUNCTION redrive_stream(p_queue text, p_stream_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE wh_active_streams s
  SET ready_at = p_as_of, attempts = 0, moved_at = p_as_of
  WHERE s.queue = p_queue AND s.stream_id = p_stream_id AND s.instance_id IS NULL
    AND NOT is_ready(s.ready_at, s.lease_expiry, p_as_of);
  IF FOUND THEN
    PERFORM wake_waiting_instances();
    RETURN true;
  END IF;
  RETURN false;
END;
$$;
