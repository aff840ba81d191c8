-- Records why the heads of leased streams failed, sets when they are tried again, and gives back the rest of the run.
-- p_verdicts: retry (parked once out of attempts), park, or postpone (the attempt does not count: the message is not
-- to blame). p_retry_seconds may be NULL. Returns the places of the reports that were refused: the lease is not the
-- reporter's, or the message is not the head of its stream.
CREATE OR REPLACE FUNCTION fail_messages(
  p_instance_id uuid, p_queues text[], p_stream_ids uuid[], p_lease_tokens bigint[], p_versions bigint[],
  p_errors text[], p_retry_seconds double precision[], p_verdicts text[], p_max_attempts integer, p_as_of timestamptz)
RETURNS integer[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_places integer[];
  v_parked record;
BEGIN
  IF cardinality(p_stream_ids) = 0 THEN
    RETURN '{}';
  END IF;
  SELECT array_agg(h.place) INTO v_places
  FROM (
    SELECT r.place
    FROM unnest(p_queues, p_stream_ids, p_lease_tokens, p_versions) WITH ORDINALITY
      AS r(queue, stream_id, lease_token, version, place)
    JOIN wh_active_streams s ON s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue
    WHERE s.instance_id = p_instance_id AND s.lease_token = r.lease_token AND r.version = CASE WHEN s.queue LIKE 'receptor/%' THEN work_through(s.queue, s.stream_id, s.head_version, 1)
        ELSE s.head_version + 1 END
    ORDER BY r.queue COLLATE "C", r.stream_id
    FOR NO KEY UPDATE OF s
  ) h;

  UPDATE wh_active_streams s
  SET error = COALESCE(r.error, 'unknown'), moved_at = p_as_of,
    attempts = CASE WHEN r.verdict = 'postpone' THEN s.attempts - 1 ELSE s.attempts END,
    ready_at = p_as_of + make_interval(secs => COALESCE(r.retry_seconds, retry_delay(s.attempts))),
    instance_id = NULL, lease_expiry = NULL, lease_token = NULL, leased_through = NULL
  FROM unnest(p_queues, p_stream_ids, p_errors, p_retry_seconds, p_verdicts) WITH ORDINALITY
    AS r(queue, stream_id, error, retry_seconds, verdict, place)
  WHERE r.place = ANY (v_places) AND s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue;

  FOR v_parked IN
    SELECT r.queue, array_agg(r.stream_id) AS stream_ids
    FROM unnest(p_queues, p_stream_ids, p_verdicts) WITH ORDINALITY AS r(queue, stream_id, verdict, place)
    JOIN wh_active_streams s ON s.stream_id = ANY (ARRAY[r.stream_id]) AND s.queue = r.queue
    WHERE r.place = ANY (v_places)
      AND (r.verdict = 'park' OR (r.verdict = 'retry' AND s.attempts >= p_max_attempts))
    GROUP BY r.queue
  LOOP
    PERFORM park_streams(v_parked.queue, v_parked.stream_ids, NULL, p_as_of);
  END LOOP;
  RETURN ARRAY(
    SELECT place FROM generate_subscripts(p_stream_ids, 1) AS place WHERE place <> ALL (COALESCE(v_places, '{}')));
END;
$$;
