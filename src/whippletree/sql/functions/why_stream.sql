-- Why the work of a stream is not being handled, in sentences, the nearest reason first. None when nothing waits there.
-- The conditions are those of a claim, in the same order.
CREATE OR REPLACE FUNCTION why_stream(p_queue text, p_stream_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_stream wh_active_streams;
  v_first bigint;
  v_head text;
BEGIN
  SELECT * INTO v_stream FROM wh_active_streams s WHERE s.queue = p_queue AND s.stream_id = p_stream_id;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  -- A receptor's next event need not be the stream's next.
  v_first := COALESCE(work_through(p_queue, p_stream_id, v_stream.head_version, 1), v_stream.head_version + 1);
  v_head := 'its head, version ' || v_first || ',';
  IF v_stream.lease_expiry > p_as_of THEN
    RETURN NEXT format('%s leased to %s; the lease ends in %s',
      CASE WHEN v_stream.leased_through > v_first THEN format('versions %s to %s are', v_first, v_stream.leased_through)
        ELSE format('version %s is', v_first) END,
      described_instance(v_stream.instance_id, p_as_of), spoken_time(v_stream.lease_expiry - p_as_of));
  ELSIF v_stream.ready_at = 'infinity' THEN
    RETURN NEXT format('%s is parked after %s: %s', v_head, spoken_count(v_stream.attempts, 'attempt'),
      COALESCE(v_stream.error, 'no error is known'));
    RETURN NEXT 'mend the cause, then redrive the stream, or skip the message';
  ELSIF v_stream.ready_at > p_as_of AND v_stream.error IS NOT NULL THEN
    RETURN NEXT format('%s failed %s and is retried in %s: %s', v_head, spoken_count(v_stream.attempts, 'time'),
      spoken_time(v_stream.ready_at - p_as_of), v_stream.error);
  ELSIF v_stream.ready_at > p_as_of THEN
    RETURN NEXT format('%s is due in %s', v_head, spoken_time(v_stream.ready_at - p_as_of));
  ELSE
    RETURN QUERY SELECT why_unclaimed(v_stream, v_first, p_as_of);
  END IF;
END;
$$;
