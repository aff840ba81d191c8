-- Leases ready streams to the instance and returns their next messages. What is leased is what is returned.
-- p_ready_since spares the scan what is long done or another's; it may hide older ready streams. So that the next claim
-- can say it, the first row's detail is from when on that one has to look.
CREATE OR REPLACE FUNCTION claim_messages(
  p_instance_id uuid, p_queue text, p_limit integer, p_lease_seconds double precision, p_run_limit integer,
  p_byte_limit bigint, p_max_attempts integer, p_ready_since timestamptz, p_as_of timestamptz)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_expiry timestamptz := p_as_of + make_interval(secs => p_lease_seconds);
  v_token bigint;
  v_rows tid[];
  v_stream_ids uuid[];
  v_heads bigint[];
  v_through bigint[];
  v_attempts integer[];
  v_barren uuid[];
  v_next_scan text;
BEGIN
  -- One claim of an instance at a time: resume_claims then knows that it sees the last one.
  PERFORM pg_advisory_xact_lock(lock_key('claim:' || p_queue || ':' || p_instance_id));
  -- Streams with nothing to hand out are settled and take no room: what is behind them is looked for in another turn.
  FOR v_turn IN 1 .. 100 LOOP
    SELECT array_agg(s.row_id) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.stream_id) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.head_version) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.through) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.attempts + 1) FILTER (WHERE s.through IS NOT NULL),
      array_agg(s.stream_id) FILTER (WHERE s.through IS NULL), next_scan(min(s.ready_at), p_as_of)
    INTO v_rows, v_stream_ids, v_heads, v_through, v_attempts, v_barren, v_next_scan
    FROM pick_streams(owners_served(p_instance_id, p_queue), p_queue, p_limit, p_run_limit, p_byte_limit, p_max_attempts,
      p_ready_since, p_as_of) s;
    EXIT WHEN v_barren IS NULL;
    PERFORM settle_barren_streams(p_queue, v_barren, p_max_attempts, p_as_of);
    EXIT WHEN v_stream_ids IS NOT NULL;
  END LOOP;
  IF v_stream_ids IS NULL THEN
    RETURN;
  END IF;

  v_token := nextval('wh_lease_tokens');
  PERFORM lease_streams(p_instance_id, v_rows, v_through, v_attempts, v_token, v_expiry, p_as_of);
  RETURN QUERY
  SELECT 'claimed', p_queue, NULL::integer, m.stream_id, m.version, m.message_id, m.message_type, m.topic, m.payload,
    m.headers, m.correlation_id, m.causation_id, date_part('epoch', m.created_at), r.attempts, v_token,
    CASE WHEN r.place = 1 THEN v_next_scan END
  FROM unnest(v_stream_ids, v_heads, v_through, v_attempts)
    WITH ORDINALITY AS r(stream_id, head_version, through, attempts, place)
  CROSS JOIN LATERAL (
    SELECT n.* FROM wh_messages n
    WHERE n.queue = p_queue AND n.stream_id = r.stream_id AND n.version > r.head_version AND n.version <= r.through
    ORDER BY n.version
  ) m;
END;
$$;
