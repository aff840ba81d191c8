-- One batch of work, in one transaction, in typed arrays and plain rows. process_work_batch is the same in JSON.
--
-- Order of locks, the same in every batch, so that no two wait for each other in a circle:
--   0. the instance's own lock, shared: only end_lost_calls, which holds nothing else, takes it alone
--   1. writers' rows (wh_streams), message ids of the inbox, workers' rows FOR KEY SHARE: store, each sorted by key
--   2. workers' rows FOR NO KEY UPDATE, sorted by key: report_work
--   3. the removal of drained streams upgrades rows of step 2, and only with SKIP LOCKED
--   4. the instance's own row; other instances, partitions and orphans under one lock, with SKIP LOCKED
--   5. claims, with SKIP LOCKED
-- Nothing waits after step 2, but for a moment for the lock of step 4, and storers, who wait for step 3 only, come before it.
CREATE OR REPLACE FUNCTION process_work(
  p_instance_id uuid, p_service_name text, p_host_name text, p_process_id integer, p_metadata jsonb,
  p_session_locked boolean, p_new_outbox_messages jsonb, p_new_inbox_messages jsonb,
  p_completed_queues text[], p_completed_streams uuid[], p_completed_tokens bigint[], p_completed_through bigint[],
  p_failed_queues text[], p_failed_streams uuid[], p_failed_tokens bigint[], p_failed_versions bigint[],
  p_failed_errors text[], p_failed_retry_seconds double precision[], p_failed_verdicts text[],
  p_released_queues text[], p_released_streams uuid[], p_released_tokens bigint[], p_released_from bigint[],
  p_renewed_queues text[], p_renewed_streams uuid[], p_renewed_tokens bigint[],
  p_claim_queues text[], p_claim_limits integer[], p_lease_seconds double precision,
  p_stale_threshold_seconds double precision, p_max_partitions integer, p_run_limit integer, p_byte_limit bigint,
  p_max_attempts integer, p_ready_since timestamptz, p_debug_mode boolean, p_wait boolean,
  p_partitions_version bigint, p_as_of timestamptz DEFAULT NULL)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_as_of timestamptz;
  v_reports boolean := cardinality(p_completed_streams) + cardinality(p_failed_streams) + cardinality(p_released_streams)
    + cardinality(p_renewed_streams) IS DISTINCT FROM 0;
  v_idle boolean := p_wait;
  v_claimed boolean := false;
  v_own record;
BEGIN
  PERFORM require_read_committed();
  -- An instance that lost an answer waits for this before it asks what happened.
  PERFORM pg_advisory_xact_lock_shared(lock_key('work:' || p_instance_id));
  PERFORM require_membership(p_instance_id, p_service_name, p_host_name, p_process_id);
  -- A poll brings nothing, and is not to pay for what others bring.
  IF p_new_outbox_messages || p_new_inbox_messages IS DISTINCT FROM '[]' THEN
    RETURN QUERY SELECT * FROM store_all_new_messages(p_new_outbox_messages, p_new_inbox_messages, p_as_of);
  END IF;
  IF v_reports THEN
    RETURN QUERY SELECT * FROM report_work(p_instance_id,
      p_completed_queues, p_completed_streams, p_completed_tokens, p_completed_through,
      p_failed_queues, p_failed_streams, p_failed_tokens, p_failed_versions, p_failed_errors, p_failed_retry_seconds,
      p_failed_verdicts, p_released_queues, p_released_streams, p_released_tokens, p_released_from,
      p_renewed_queues, p_renewed_streams, p_renewed_tokens, p_lease_seconds, p_max_attempts, p_debug_mode, p_as_of);
  END IF;

  PERFORM keep_membership(p_instance_id, p_service_name, p_host_name, p_process_id, p_metadata, p_session_locked,
    p_claim_queues, p_stale_threshold_seconds, p_max_partitions, p_as_of);

  SELECT i.draining, i.waiting, i.partitions_version INTO v_own
  FROM wh_service_instances i WHERE i.instance_id = p_instance_id;
  -- Read after every wait, so that a lease is whole when it begins.
  v_as_of := COALESCE(p_as_of, clock_timestamp());
  FOR v_turn IN 1 .. COALESCE(cardinality(p_claim_queues), 0) LOOP
    EXIT WHEN v_own.draining;
    RETURN QUERY SELECT * FROM claim_work(p_instance_id, p_claim_queues[v_turn], p_claim_limits[v_turn],
      p_lease_seconds, p_run_limit, p_byte_limit, p_max_attempts,
      scan_since(v_own.partitions_version, p_partitions_version, p_ready_since), v_as_of);
    -- Whoever was just woken waits on: what is stored meanwhile may be committed after it has found no more.
    v_idle := v_idle AND (NOT FOUND OR v_own.waiting AND NOT v_reports);
    v_claimed := v_claimed OR FOUND;
    RETURN QUERY SELECT * FROM found_nothing(p_claim_queues[v_turn], v_as_of) WHERE NOT FOUND;
  END LOOP;
  -- Who was evicted while the call waited would lease what nobody frees before the lease ends.
  PERFORM require_membership(p_instance_id, p_service_name, p_host_name, p_process_id) WHERE v_claimed;
  -- One that drains could not take what it would be woken for.
  v_idle := v_idle AND NOT v_own.draining;
  PERFORM record_waiting(p_instance_id, v_idle) WHERE v_own.waiting <> v_idle;
  IF v_own.partitions_version IS DISTINCT FROM p_partitions_version THEN
    RETURN QUERY SELECT * FROM changed_partitions(p_instance_id, p_partitions_version);
  END IF;
END;
$$;
