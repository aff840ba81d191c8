-- What a stream holds, the newest first: its stored events, and the messages of it that wait.
CREATE OR REPLACE FUNCTION stream_contents(p_stream_id uuid, p_limit integer, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (kind text, version bigint, message_type text, message_id uuid, age double precision, state text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  (SELECT 'event', e.version, e.event_type, e.event_id, EXTRACT(epoch FROM p_as_of - e.created_at)::double precision,
    COALESCE((SELECT string_agg(split_part(q, '/', 2), ', ' ORDER BY q) || ' behind' FROM unnest(t.queues) q
      WHERE NOT is_handled(q, e.stream_id, e.version)), 'done')
  FROM wh_event_store e LEFT JOIN wh_event_types t ON t.event_type = e.event_type
  WHERE e.stream_id = p_stream_id
  ORDER BY e.version DESC LIMIT p_limit)
  UNION ALL
  (SELECT m.queue, m.version, m.message_type, m.message_id, EXTRACT(epoch FROM p_as_of - m.created_at)::double precision,
    CASE
      WHEN m.version <= s.leased_through AND is_leased(s.lease_expiry, p_as_of) THEN 'in hand'
      WHEN m.version = s.head_version + 1 AND is_parked(s.ready_at) THEN 'parked'
      WHEN m.version = s.head_version + 1 AND s.error IS NOT NULL THEN 'failing'
      ELSE 'waiting'
    END
  FROM wh_messages m JOIN wh_active_streams s ON s.queue = m.queue AND s.stream_id = m.stream_id
  WHERE m.queue IN ('outbox', 'inbox') AND m.stream_id = p_stream_id
  ORDER BY m.queue, m.version DESC LIMIT p_limit);
$$;
