-- The streams that are parked, or, when asked for, those that wait for a retry too; the longest stopped first.
CREATE OR REPLACE FUNCTION stopped_streams(
  p_queue text DEFAULT NULL, p_retrying boolean DEFAULT false, p_limit integer DEFAULT 100,
  p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (queue text, stream_id uuid, stream_name text, version bigint, message_id uuid, message_type text,
  attempts integer, error text, stopped double precision, parked boolean)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT s.queue, s.stream_id, described_stream(s.stream_id), h.version, COALESCE(m.message_id, e.event_id),
    COALESCE(m.message_type, e.event_type), s.attempts, s.error,
    EXTRACT(epoch FROM p_as_of - s.moved_at)::double precision, is_parked(s.ready_at)
  FROM wh_active_streams s
  CROSS JOIN LATERAL (SELECT work_through(s.queue, s.stream_id, s.head_version, 1) AS version) h
  LEFT JOIN wh_messages m ON m.queue = s.queue AND m.stream_id = s.stream_id AND m.version = h.version
  LEFT JOIN wh_event_store e ON s.queue NOT IN ('outbox', 'inbox') AND e.stream_id = s.stream_id AND e.version = h.version
  WHERE (is_parked(s.ready_at) OR p_retrying AND s.error IS NOT NULL AND s.instance_id IS NULL)
    AND (p_queue IS NULL OR s.queue = p_queue)
  ORDER BY s.moved_at, s.queue, s.stream_id
  LIMIT p_limit;
$$;
