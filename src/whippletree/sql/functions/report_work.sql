-- Ends or prolongs work: complete, fail, release, renew, each under its lease token. A row for every report refused.
-- Whoever works in a transaction of its own calls it there, as its last statement: the locks are held to the commit.
CREATE OR REPLACE FUNCTION report_work(
  p_instance_id uuid,
  p_completed_queues text[], p_completed_streams uuid[], p_completed_tokens bigint[], p_completed_through bigint[],
  p_failed_queues text[], p_failed_streams uuid[], p_failed_tokens bigint[], p_failed_versions bigint[],
  p_failed_errors text[], p_failed_retry_seconds double precision[], p_failed_verdicts text[],
  p_released_queues text[], p_released_streams uuid[], p_released_tokens bigint[], p_released_from bigint[],
  p_renewed_queues text[], p_renewed_streams uuid[], p_renewed_tokens bigint[],
  p_lease_seconds double precision, p_max_attempts integer, p_debug_mode boolean, p_as_of timestamptz DEFAULT NULL)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_as_of timestamptz;
  v_only_completed constant boolean :=
    cardinality(p_failed_streams) + cardinality(p_released_streams) + cardinality(p_renewed_streams) = 0;
BEGIN
  PERFORM require_read_committed();
  -- Streams that are only completed are locked as they are looked up, in the same order.
  IF v_only_completed IS NOT TRUE THEN
    PERFORM lock_streams(p_completed_queues || p_failed_queues || p_released_queues || p_renewed_queues,
      p_completed_streams || p_failed_streams || p_released_streams || p_renewed_streams);
  END IF;
  v_as_of := COALESCE(p_as_of, clock_timestamp());
  RETURN QUERY SELECT * FROM refused_reports('complete', p_completed_queues, p_completed_streams,
    complete_messages(p_instance_id, p_completed_queues, p_completed_streams, p_completed_tokens, p_completed_through,
      p_debug_mode, p_as_of));
  IF v_only_completed THEN
    RETURN;
  END IF;
  RETURN QUERY SELECT * FROM refused_reports('fail', p_failed_queues, p_failed_streams,
    fail_messages(p_instance_id, p_failed_queues, p_failed_streams, p_failed_tokens, p_failed_versions,
      p_failed_errors, p_failed_retry_seconds, p_failed_verdicts, p_max_attempts, v_as_of));
  RETURN QUERY SELECT * FROM refused_reports('release', p_released_queues, p_released_streams,
    release_messages(p_instance_id, p_released_queues, p_released_streams, p_released_tokens, p_released_from, v_as_of));
  RETURN QUERY SELECT * FROM refused_reports('renew', p_renewed_queues, p_renewed_streams,
    renew_leases(p_instance_id, p_renewed_queues, p_renewed_streams, p_renewed_tokens, p_lease_seconds, v_as_of));
END;
$$;
