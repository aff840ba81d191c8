-- Parks the heads of the given streams, whose rows the caller has locked: the stream waits, everything else runs.
-- A message without a stream has nobody waiting behind it and goes to the dead letters.
CREATE OR REPLACE FUNCTION park_streams(p_queue text, p_stream_ids uuid[], p_error text, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
  UPDATE wh_active_streams s
  SET ready_at = 'infinity', error = COALESCE(s.error, p_error), moved_at = p_as_of,
    instance_id = NULL, lease_expiry = NULL, lease_token = NULL, leased_through = NULL
  WHERE s.queue = p_queue AND s.stream_id = ANY (p_stream_ids);

  WITH dead AS (
    DELETE FROM wh_messages m
    USING wh_active_streams s
    WHERE s.queue = p_queue AND s.stream_id = ANY (p_stream_ids)
      AND m.queue = s.queue AND m.stream_id = s.stream_id AND m.version = s.head_version + 1
      AND m.message_id = m.stream_id
    RETURNING m.*, s.attempts, s.error
  ), buried AS (
    INSERT INTO wh_dead_letters (queue, stream_id, version, message_id, message_type, topic, payload, headers,
      correlation_id, causation_id, scheduled_for, created_at, attempts, error, reason, died_at)
    SELECT d.queue, d.stream_id, d.version, d.message_id, d.message_type, d.topic, d.payload, d.headers,
      d.correlation_id, d.causation_id, d.scheduled_for, d.created_at, d.attempts, d.error, 'out of attempts', p_as_of
    FROM dead d
    RETURNING stream_id
  )
  DELETE FROM wh_active_streams s USING buried b WHERE s.queue = p_queue AND s.stream_id = b.stream_id;
END;
$$;
