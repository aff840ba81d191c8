-- Leases streams with events that a perspective or a receptor has before it, and returns the work.
CREATE OR REPLACE FUNCTION claim_event_work(
  p_instance_id uuid, p_queue text, p_limit integer, p_lease_seconds double precision, p_run_limit integer,
  p_max_attempts integer, p_ready_since timestamptz, p_as_of timestamptz)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_token bigint;
  v_rows tid[];
  v_stream_ids uuid[];
  v_heads bigint[];
  v_through bigint[];
  v_attempts integer[];
  v_barren uuid[];
BEGIN
  -- Not waited for: the queues of a kind come in any order, and what another call of the instance claims now is its own.
  IF NOT pg_try_advisory_xact_lock(lock_key('claim:' || p_queue || ':' || p_instance_id)) THEN
    RETURN;
  END IF;
  -- As in claim_messages.
  FOR v_turn IN 1 .. 100 LOOP
    SELECT array_agg(s.row_id) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.stream_id) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.head_version) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.through) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.attempts + 1) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.stream_id) FILTER (WHERE s.through IS NULL)
    INTO v_rows, v_stream_ids, v_heads, v_through, v_attempts, v_barren
    FROM pick_event_streams(owners_served(p_instance_id, p_queue), p_queue, p_limit, p_run_limit, p_max_attempts,
      p_ready_since, p_as_of) s;
    EXIT WHEN v_barren IS NULL;
    PERFORM settle_barren_streams(p_queue, v_barren, p_max_attempts, p_as_of);
    EXIT WHEN v_stream_ids IS NOT NULL;
  END LOOP;
  IF v_stream_ids IS NULL THEN
    RETURN;
  END IF;

  v_token := nextval('wh_lease_tokens');
  PERFORM lease_streams(p_instance_id, v_rows, v_through, v_attempts, v_token,
    p_as_of + make_interval(secs => p_lease_seconds), p_as_of);
  RETURN QUERY SELECT * FROM leased_event_work(p_queue, v_stream_ids, v_heads, v_through, v_attempts,
    array_fill(v_token, ARRAY[cardinality(v_stream_ids)]));
END;
$$;
