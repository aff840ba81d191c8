-- Leases ready streams to the instance and returns their next messages. What is leased is what is returned.
-- p_ready_since spares the scan the dead index entries of what is long done; it may hide older ready streams.
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
  v_stream_ids uuid[];
  v_heads bigint[];
  v_through bigint[];
  v_attempts integer[];
  v_barren uuid[];
BEGIN
  -- One claim of an instance at a time: resume_claims then knows that it sees the last one.
  PERFORM pg_advisory_xact_lock(lock_key('claim:' || p_queue || ':' || p_instance_id));
  SELECT array_agg(s.stream_id) FILTER (WHERE s.through IS NOT NULL),
    array_agg(s.head_version) FILTER (WHERE s.through IS NOT NULL),
    array_agg(s.through) FILTER (WHERE s.through IS NOT NULL),
    array_agg(s.attempts + 1) FILTER (WHERE s.through IS NOT NULL),
    array_agg(s.stream_id) FILTER (WHERE s.through IS NULL)
  INTO v_stream_ids, v_heads, v_through, v_attempts, v_barren
  FROM pick_streams(p_instance_id, p_queue, p_limit, p_run_limit, p_byte_limit, p_max_attempts, p_ready_since,
    p_as_of) s;
  IF v_barren IS NOT NULL THEN
    PERFORM settle_barren_streams(p_queue, v_barren, p_max_attempts, p_as_of);
  END IF;
  IF v_stream_ids IS NULL THEN
    RETURN;
  END IF;

  v_token := nextval('wh_lease_tokens');
  UPDATE wh_active_streams s
  SET instance_id = p_instance_id, lease_token = v_token, leased_through = r.through, lease_expiry = v_expiry,
    ready_at = v_expiry, attempts = r.attempts, moved_at = p_as_of
  FROM unnest(v_stream_ids, v_through, v_attempts) AS r(stream_id, through, attempts)
  WHERE s.queue = p_queue AND s.stream_id = r.stream_id;

  RETURN QUERY
  SELECT 'claimed', p_queue, NULL::integer, m.stream_id, m.version, m.message_id, m.message_type, m.topic, m.payload,
    m.headers, m.correlation_id, m.causation_id, m.created_at, r.attempts, v_token, NULL::text
  FROM unnest(v_stream_ids, v_heads, v_through, v_attempts) WITH ORDINALITY
    AS r(stream_id, head_version, through, attempts, place)
  JOIN wh_messages m
    ON m.queue = p_queue AND m.stream_id = r.stream_id AND m.version > r.head_version AND m.version <= r.through
  ORDER BY r.place, m.version;
END;
$$;
