-- Reads reports on messages from JSON, resolves each to its stream, and says what is wrong with it, if anything is.
-- An element is a message id, or an object with message_id and, where it matters, status, error, stack_trace,
-- retry_seconds and lease_token. Without a token the instance's present lease counts. Status 0 among completions is a release.
CREATE OR REPLACE FUNCTION read_reports(p_instance_id uuid, p_queue text, p_verb text, p_elements jsonb)
RETURNS SETOF wh_report
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT p_queue, r.verb, r.place::integer, r.message_id, m.stream_id, m.version, COALESCE(r.token, s.lease_token),
    left(COALESCE(r.e ->> 'error', 'unknown') || COALESCE(E'\n' || (r.e ->> 'stack_trace'), ''), 10000), r.retry_seconds,
    CASE
      WHEN r.message_id IS NULL THEN 'message_id is missing or is not a UUID'
      WHEN r.token = -1 THEN 'lease_token is not a token'
      WHEN r.verb = 'fail' AND r.e ->> 'retry_seconds' IS NOT NULL AND r.retry_seconds IS NULL
        THEN 'retry_seconds is not a number from 0 to 999999999'
      WHEN r.verb = 'fail' AND r.e ->> 'status' !~ '^(\d|1[0-5])$' THEN format(
        'status %s is unknown: use 8 (failed), with 1 (stored) and 2 (published) if you like', r.e ->> 'status')
      WHEN r.verb IS NULL THEN format('status %s ends nothing: use 2 (published), 4 (completed) or 0 (release)',
        COALESCE(r.e ->> 'status', 'null'))
      WHEN m.message_id IS NULL THEN 'unknown message: it is finished, or was never stored'
      WHEN s.instance_id IS DISTINCT FROM p_instance_id OR m.version > s.leased_through OR r.token <> s.lease_token
        THEN 'lease lost'
      WHEN CASE r.verb WHEN 'complete' THEN m.version - s.head_version WHEN 'fail' THEN 1 END <>
        -- What is refused for its token must not count as finished before the next.
        dense_rank() OVER (PARTITION BY m.stream_id, r.verb, COALESCE(r.token, s.lease_token) ORDER BY m.version)
        THEN 'out of order: an earlier message of its stream is not finished'
    END
  FROM (
    SELECT n.place, n.e, uuid_or_null(CASE jsonb_typeof(n.e) WHEN 'string' THEN n.e #>> '{}' ELSE n.e ->> 'message_id' END)
        AS message_id,
      CASE WHEN n.e ->> 'lease_token' ~ '^\d{1,18}$' THEN (n.e ->> 'lease_token')::bigint
        WHEN n.e ->> 'lease_token' IS NOT NULL THEN -1 END AS token,
      CASE WHEN n.e ->> 'retry_seconds' ~ '^\d{1,9}(\.\d+)?$' THEN (n.e ->> 'retry_seconds')::double precision END
        AS retry_seconds,
      CASE
        WHEN p_verb <> 'complete' THEN p_verb
        WHEN n.e ->> 'status' = '0' THEN 'release'
        WHEN n.e ->> 'status' IN ('2', '3', '4', '5', '6', '7') THEN 'complete'
      END AS verb
    FROM jsonb_array_elements(require_array(format('the reports %s %s', p_queue, p_verb), p_elements))
      WITH ORDINALITY AS n(e, place)
    -- Reads each element once: see read_new_messages.
    OFFSET 0
  ) r
  LEFT JOIN LATERAL (
    SELECT f.message_id, f.stream_id, f.version FROM wh_messages f
    WHERE f.message_id = r.message_id AND f.queue = p_queue AND f.version > 0 OFFSET 0
  ) m ON true
  LEFT JOIN LATERAL (
    SELECT a.* FROM wh_active_streams a WHERE a.queue = p_queue AND a.stream_id = m.stream_id OFFSET 0
  ) s ON true;
END;
$$;
