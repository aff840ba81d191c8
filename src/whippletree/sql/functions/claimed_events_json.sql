-- The claimed work of receptors or perspectives as a JSON array.
CREATE OR REPLACE FUNCTION claimed_events_json(p_work wh_work[], p_kind text)
RETURNS jsonb
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT COALESCE(jsonb_agg(CASE p_kind
    WHEN 'receptor' THEN jsonb_build_object(
      'event_id', w.message_id, 'receptor_name', substr(w.queue, 10), 'stream_id', w.stream_id, 'version', w.version,
      'event_type', w.message_type, 'shape', w.detail::integer, 'payload', jsonb_or_text(w.payload),
      'metadata', jsonb_or_text(w.headers), 'correlation_id', w.correlation_id, 'causation_id', w.causation_id,
      'created_at', to_timestamp(w.created_at), 'attempts', w.attempts, 'lease_token', w.lease_token)
    ELSE jsonb_build_object(
      'stream_id', w.stream_id, 'perspective_name', substr(w.queue, 13), 'last_processed_event_id', w.message_id,
      'version', w.version, 'through', w.detail::bigint, 'attempts', w.attempts, 'lease_token', w.lease_token)
    END), '[]')
  FROM unnest(p_work) w
  WHERE w.kind = 'claimed' AND w.queue LIKE p_kind || '/%';
$$;
