-- Reads reports on receptors' and perspectives' work from JSON, resolves each to its stream, and says what is wrong with
-- it, if anything is. A receptor's element names event_id and receptor_name; a perspective's stream_id, perspective_name
-- and, when completed, last_event_id. Without lease_token the instance's present lease counts.
CREATE OR REPLACE FUNCTION read_event_reports(p_instance_id uuid, p_kind text, p_verb text, p_elements jsonb)
RETURNS SETOF wh_report
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT COALESCE(r.queue, p_kind), p_verb, r.place::integer, r.event_id, COALESCE(e.stream_id, r.stream_id),
    COALESCE(e.version, s.head_version + 1), COALESCE(r.token, s.lease_token),
    left(COALESCE(r.e ->> 'error', 'unknown'), 10000), r.retry_seconds,
    CASE
      WHEN r.queue IS NULL THEN format('%s_name is missing', p_kind)
      WHEN r.token = -1 THEN 'lease_token is not a token'
      WHEN r.e ->> 'status' <> CASE p_verb WHEN 'complete' THEN 'Completed' ELSE 'Failed' END
        THEN format('status %s does not end it so: use Completed among completions, Failed among failures', r.e ->> 'status')
      WHEN p_verb = 'fail' AND r.e ->> 'retry_seconds' IS NOT NULL AND r.retry_seconds IS NULL
        THEN 'retry_seconds is not a number from 0 to 999999999'
      WHEN e.event_id IS NULL AND (p_kind = 'receptor' OR p_verb = 'complete')
        THEN format('unknown event: %s', COALESCE(r.event_id::text, 'its id is missing or is not a UUID'))
      WHEN e.stream_id <> r.stream_id THEN 'the event is of another stream'
      WHEN s.instance_id IS DISTINCT FROM p_instance_id OR r.token <> s.lease_token OR e.version > s.leased_through
        THEN 'lease lost'
      -- Not checked for perspectives, whose checkpoint says how far they are. See read_reports.
      WHEN p_kind = 'receptor' AND p_verb = 'complete' AND (
        SELECT count(*) FROM wh_receptor_log l WHERE l.receptor_name = substr(r.queue, 10) AND l.stream_id = e.stream_id
          AND l.version > s.head_version AND l.version <= e.version) <> dense_rank() OVER (PARTITION BY r.queue, e.stream_id,
          COALESCE(r.stream_id, e.stream_id), COALESCE(r.token, s.lease_token), r.e ->> 'status' ORDER BY e.version)
        THEN 'out of order: an earlier event of its stream is not finished'
    END
  FROM (
    SELECT n.place, n.e, p_kind || '/' || (n.e ->> (p_kind || '_name')) AS queue,
      uuid_or_null(n.e ->> CASE p_kind WHEN 'receptor' THEN 'event_id' ELSE 'last_event_id' END) AS event_id,
      uuid_or_null(n.e ->> 'stream_id') AS stream_id,
      CASE WHEN n.e ->> 'lease_token' ~ '^\d{1,18}$' THEN (n.e ->> 'lease_token')::bigint
        WHEN n.e ->> 'lease_token' IS NOT NULL THEN -1 END AS token,
      CASE WHEN n.e ->> 'retry_seconds' ~ '^\d{1,9}(\.\d+)?$' THEN (n.e ->> 'retry_seconds')::double precision END
        AS retry_seconds
    FROM jsonb_array_elements(require_array(format('the reports %s %s', p_kind, p_verb), p_elements))
      WITH ORDINALITY AS n(e, place)
    -- Reads each element once: see read_new_messages.
    OFFSET 0
  ) r
  LEFT JOIN LATERAL (
    SELECT f.event_id, f.stream_id, f.version FROM wh_event_store f
    WHERE f.event_id = r.event_id AND (p_kind = 'receptor' OR p_verb = 'complete') OFFSET 0
  ) e ON true
  LEFT JOIN LATERAL (
    SELECT a.* FROM wh_active_streams a
    WHERE a.stream_id = COALESCE(e.stream_id, r.stream_id) AND a.queue = r.queue OFFSET 0
  ) s ON true;
END;
$$;
