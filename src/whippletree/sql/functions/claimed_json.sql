-- The claimed messages of one queue as a JSON array.
CREATE OR REPLACE FUNCTION claimed_json(p_work wh_work[], p_queue text)
RETURNS jsonb
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT COALESCE(jsonb_agg(jsonb_build_object(
    'message_id', w.message_id, 'stream_id', NULLIF(w.stream_id, w.message_id), 'version', w.version,
    'message_type', w.message_type, CASE p_queue WHEN 'outbox' THEN 'topic' ELSE 'source_topic' END, w.topic,
    'payload', jsonb_or_text(w.payload), 'headers', jsonb_or_text(w.headers), 'correlation_id', w.correlation_id,
    'causation_id', w.causation_id, 'created_at', to_timestamp(w.created_at), 'attempts', w.attempts,
    'lease_token', w.lease_token)), '[]')
  FROM unnest(p_work) w
  WHERE w.kind = 'claimed' AND w.queue = p_queue;
$$;
