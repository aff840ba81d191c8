-- Why the work of a stream is not being handled, in sentences, the nearest reason first. None when nothing waits there.
-- A stream is ready when the claim's own condition says so; what is not ready says what it waits for.
CREATE OR REPLACE FUNCTION why_stream(p_queue text, p_stream_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_stream wh_active_streams;
  v_first bigint;
  v_due timestamptz;
  v_head text;
BEGIN
  SELECT * INTO v_stream FROM wh_active_streams s WHERE s.queue = p_queue AND s.stream_id = p_stream_id;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  -- A receptor's next event need not be the stream's next.
  v_first := work_through(p_queue, p_stream_id, v_stream.head_version, 1);
  v_due := (SELECT m.scheduled_for FROM wh_messages m WHERE m.queue = p_queue AND m.stream_id = p_stream_id AND m.version = v_first);
  v_head := 'its head, version ' || v_first || ',';
  IF v_first IS NULL THEN
    RETURN NEXT 'nothing of it can be seen: whoever stores it has not committed, or has gone back';
  ELSIF is_ready(v_stream.ready_at, v_stream.lease_expiry, p_as_of) AND is_ahead(v_due, p_as_of) IS NOT TRUE THEN
    RETURN QUERY SELECT why_unclaimed(v_stream, v_first, p_as_of);
  ELSIF is_leased(v_stream.lease_expiry, p_as_of) THEN
    RETURN NEXT format('%s leased to %s; the lease ends in %s',
      CASE WHEN v_stream.leased_through > v_first THEN format('versions %s to %s are', v_first, v_stream.leased_through)
        ELSE format('version %s is', v_first) END,
      described_instance(v_stream.instance_id, p_as_of), spoken_time(v_stream.lease_expiry - p_as_of));
  ELSIF is_parked(v_stream.ready_at) THEN
    RETURN NEXT format('%s is parked after %s: %s', v_head, spoken_count(v_stream.attempts, 'attempt'),
      COALESCE(v_stream.error, 'no error is known'));
    RETURN NEXT format('mend the cause, then `whippletree redrive %s`; or `whippletree skip %1$s --queue %s --reason …`',
      described_stream(p_stream_id), p_queue);
  ELSIF v_stream.error IS NOT NULL AND is_ahead(v_due, p_as_of) IS NOT TRUE THEN
    RETURN NEXT format('%s failed %s and is retried in %s: %s', v_head, spoken_count(v_stream.attempts, 'time'),
      spoken_time(v_stream.ready_at - p_as_of), v_stream.error);
  ELSE
    RETURN NEXT format('%s is due in %s', v_head, spoken_time(greatest(v_stream.ready_at, v_due) - p_as_of));
  END IF;
END;
$$;
