-- What a claim does with ready streams that have nothing to hand out. Called with their rows locked by the claim;
-- a fresh snapshot is read here, after the lock.
CREATE OR REPLACE FUNCTION settle_barren_streams(
  p_queue text, p_stream_ids uuid[], p_max_attempts integer, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  v_spent uuid[];
  v_removable uuid[];
BEGIN
  SELECT array_agg(s.stream_id) INTO v_spent
  FROM wh_active_streams s
  WHERE s.queue = p_queue AND s.stream_id = ANY (p_stream_ids) AND s.attempts >= p_max_attempts;
  IF v_spent IS NOT NULL THEN
    PERFORM park_streams(p_queue, v_spent, 'lease ran out ' || p_max_attempts || ' times: handling it ends the process',
      p_as_of);
  END IF;

  -- Nobody can be storing into a row that we hold FOR UPDATE, and everything stored before is visible below.
  SELECT array_agg(e.stream_id) INTO v_removable
  FROM (
    SELECT s.stream_id FROM wh_active_streams s
    WHERE s.queue = p_queue AND s.stream_id = ANY (p_stream_ids) AND s.attempts < p_max_attempts
    FOR UPDATE SKIP LOCKED
  ) e;
  DELETE FROM wh_active_streams s
  WHERE s.queue = p_queue AND s.stream_id = ANY (v_removable)
    AND work_through(p_queue, s.stream_id, s.head_version, 1) IS NULL;

  -- A scheduled head says when to look again. An empty stream that somebody is storing into is looked at again
  -- after as long as it has been empty, so that a long transaction does not make claims spin.
  UPDATE wh_active_streams s
  SET ready_at = COALESCE(
        (SELECT greatest(m.scheduled_for, p_as_of) FROM wh_messages m
         WHERE m.queue = p_queue AND m.stream_id = s.stream_id AND m.version = s.head_version + 1),
        p_as_of + least(interval '1 second', greatest(interval '10 milliseconds', p_as_of - s.moved_at))),
      instance_id = NULL, lease_expiry = NULL, lease_token = NULL, leased_through = NULL
  WHERE s.queue = p_queue AND s.stream_id = ANY (p_stream_ids) AND s.attempts < p_max_attempts;
END;
$$;
