-- Passes over the head of a stream in any queue, with the reason, and says which version that was; NULL when nothing
-- waits there, or when it is being handled. A head that has not been tried has to be named by its version: whoever
-- says it twice must not lose the next message.
CREATE OR REPLACE FUNCTION skip_head(
  p_queue text, p_stream_id uuid, p_reason text, p_version bigint DEFAULT NULL,
  p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_version bigint := (SELECT work_through(p_queue, p_stream_id, s.head_version, 1) FROM wh_active_streams s
    WHERE s.queue = p_queue AND s.stream_id = p_stream_id AND (s.attempts > 0 OR p_version IS NOT NULL));
BEGIN
  IF COALESCE(p_reason, '') = '' THEN
    RAISE EXCEPTION 'say why the message is skipped' USING ERRCODE = 'WH004';
  END IF;
  RETURN CASE
    WHEN v_version <> p_version THEN NULL
    WHEN p_queue NOT IN ('outbox', 'inbox') AND skip_event(p_queue, p_stream_id, v_version, p_reason, p_as_of) THEN v_version
    WHEN p_queue IN ('outbox', 'inbox') AND skip_message(p_queue, p_stream_id, v_version, p_reason, p_as_of) THEN v_version
  END;
END;
$$;
