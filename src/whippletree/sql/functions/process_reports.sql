-- Hands reports on single messages to process_work, which takes them by stream: a stream is completed up to its last
-- finished message, a failure gives back the rest of its run, and releases of what follows it say nothing new.
CREATE OR REPLACE FUNCTION process_reports(
  p_instance_id uuid, p_service_name text, p_host_name text, p_process_id integer, p_metadata jsonb,
  p_new_outbox_messages jsonb, p_new_inbox_messages jsonb, p_reports wh_report[], p_flags text[],
  p_limits integer[], p_max_partitions integer, p_lease_seconds double precision,
  p_stale_threshold_seconds double precision, p_max_attempts integer, p_as_of timestamptz)
RETURNS SETOF wh_work
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  WITH report AS MATERIALIZED (
    SELECT DISTINCT ON (r.queue, r.stream_id, r.verb) r.*
    FROM unnest(p_reports) r
    WHERE r.fault IS NULL
    -- The last finished message of a stream, but the first failed or released one.
    ORDER BY r.queue, r.stream_id, r.verb, CASE r.verb WHEN 'complete' THEN -r.version ELSE r.version END
  ), completed AS (
    SELECT array_agg(queue) AS queues, array_agg(stream_id) AS streams, array_agg(lease_token) AS tokens,
      array_agg(version) AS versions FROM report WHERE verb = 'complete'
  ), failed AS (
    SELECT array_agg(queue) AS queues, array_agg(stream_id) AS streams, array_agg(lease_token) AS tokens,
      array_agg(version) AS versions, array_agg(error) AS errors, array_agg(retry_seconds) AS retry_seconds,
      array_agg('retry'::text) AS verdicts FROM report WHERE verb = 'fail'
  ), released AS (
    SELECT array_agg(r.queue) AS queues, array_agg(r.stream_id) AS streams, array_agg(r.lease_token) AS tokens,
      array_agg(r.version) AS versions FROM report r
    WHERE r.verb = 'release' AND NOT EXISTS (SELECT FROM report f
      WHERE f.verb = 'fail' AND f.queue = r.queue AND f.stream_id = r.stream_id AND f.version <= r.version)
  ), renewed AS (
    SELECT array_agg(queue) AS queues, array_agg(stream_id) AS streams, array_agg(lease_token) AS tokens
    FROM report WHERE verb = 'renew'
  )
  SELECT w.*
  FROM completed c, failed f, released r, renewed n, (
    -- A limit of 0 takes nothing now; without a limit the caller does not work that kind at all.
    SELECT array_agg(k.queue) AS queues, array_agg(k.wanted) AS limits
    FROM unnest(ARRAY['outbox', 'inbox', 'receptor/*', 'perspective/*'], p_limits) AS k(queue, wanted)
    WHERE k.wanted IS NOT NULL AND NOT 'skip_claim' = ANY (p_flags)
  ) q, process_work(
    p_instance_id, p_service_name, p_host_name, p_process_id, p_metadata, false, p_new_outbox_messages,
    p_new_inbox_messages, COALESCE(c.queues, '{}'), COALESCE(c.streams, '{}'), COALESCE(c.tokens, '{}'),
    COALESCE(c.versions, '{}'), COALESCE(f.queues, '{}'), COALESCE(f.streams, '{}'), COALESCE(f.tokens, '{}'),
    COALESCE(f.versions, '{}'), COALESCE(f.errors, '{}'), COALESCE(f.retry_seconds, '{}'), COALESCE(f.verdicts, '{}'),
    COALESCE(r.queues, '{}'), COALESCE(r.streams, '{}'), COALESCE(r.tokens, '{}'), COALESCE(r.versions, '{}'),
    COALESCE(n.queues, '{}'), COALESCE(n.streams, '{}'), COALESCE(n.tokens, '{}'),
    q.queues, q.limits, p_lease_seconds, p_stale_threshold_seconds, p_max_partitions, 100, 16777216,
    p_max_attempts, NULL, 'debug_mode' = ANY (p_flags), false, NULL, p_as_of) w;
$$;
