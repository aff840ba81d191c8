-- Returns again what the instance holds under later tokens than the last one it received: the claim's answer was lost.
-- Waits for a claim of the same instance that is still under way, so that none is overlooked.
-- An expired lease is not resumed: it is anybody's, and the claim that follows may take it or park its stream.
CREATE OR REPLACE FUNCTION resume_claims(
  p_instance_id uuid, p_queue text, p_last_token bigint, p_as_of timestamptz DEFAULT NULL)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_queue text;
BEGIN
  FOR v_queue IN SELECT q FROM event_queues(p_queue) AS q WHERE p_queue NOT LIKE '%/*' ORDER BY q COLLATE "C" LOOP
    PERFORM pg_advisory_xact_lock(lock_key('claim:' || v_queue || ':' || p_instance_id));
    RETURN QUERY
    SELECT e.* FROM (
      SELECT array_agg(s.stream_id) AS stream_ids, array_agg(s.head_version) AS heads,
        array_agg(s.leased_through) AS through, array_agg(s.attempts) AS attempts, array_agg(s.lease_token) AS tokens
      FROM wh_active_streams s
      WHERE s.queue = v_queue AND v_queue LIKE '%/%' AND s.instance_id = p_instance_id AND s.lease_token > p_last_token
        AND is_leased(s.lease_expiry, COALESCE(p_as_of, clock_timestamp()))
      HAVING count(*) > 0
    ) h, leased_event_work(v_queue, h.stream_ids, h.heads, h.through, h.attempts, h.tokens) e;
  END LOOP;
  RETURN QUERY
  SELECT 'claimed', p_queue, NULL::integer, m.stream_id, m.version, m.message_id, m.message_type, m.topic, m.payload,
    m.headers, m.correlation_id, m.causation_id, date_part('epoch', m.created_at), s.attempts, s.lease_token, NULL::text
  FROM wh_active_streams s
  JOIN wh_messages m ON m.queue = s.queue AND m.stream_id = s.stream_id
    AND m.version > s.head_version AND m.version <= s.leased_through
  WHERE s.queue = p_queue AND s.instance_id = p_instance_id AND s.lease_token > p_last_token
    AND is_leased(s.lease_expiry, COALESCE(p_as_of, clock_timestamp()))
  ORDER BY s.lease_token, m.stream_id, m.version;
END;
$$;
