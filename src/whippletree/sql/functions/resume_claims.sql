-- Returns again what the instance holds under later tokens than the last one it received: the claim's answer was lost.
-- Waits for a claim of the same instance that is still under way, so that none is overlooked.
CREATE OR REPLACE FUNCTION resume_claims(p_instance_id uuid, p_queue text, p_last_token bigint)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(lock_key('claim:' || p_queue || ':' || p_instance_id));
  RETURN QUERY
  SELECT 'claimed', p_queue, NULL::integer, m.stream_id, m.version, m.message_id, m.message_type, m.topic, m.payload,
    m.headers, m.correlation_id, m.causation_id, m.created_at, s.attempts, s.lease_token, NULL::text
  FROM wh_active_streams s
  JOIN wh_messages m ON m.queue = s.queue AND m.stream_id = s.stream_id
    AND m.version > s.head_version AND m.version <= s.leased_through
  WHERE s.queue = p_queue AND s.instance_id = p_instance_id AND s.lease_token > p_last_token
  ORDER BY s.lease_token, m.stream_id, m.version;
END;
$$;
