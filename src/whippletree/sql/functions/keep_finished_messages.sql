-- Copies messages about to be deleted into the history that debug mode keeps. Their streams are locked and leased.
CREATE OR REPLACE FUNCTION keep_finished_messages(
  p_queues text[], p_stream_ids uuid[], p_head_versions bigint[], p_through bigint[], p_as_of timestamptz)
RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  INSERT INTO wh_finished_messages (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, scheduled_for, created_at, partition_number, attempts, instance_id, processed_at)
  SELECT m.queue, m.stream_id, m.version, m.message_id, m.message_type, m.topic, m.payload, m.headers,
    m.correlation_id, m.causation_id, m.scheduled_for, m.created_at, partition_of(s.stream_hash, k.partition_count),
    CASE WHEN m.version = s.head_version + 1 THEN s.attempts ELSE 1 END, s.instance_id, p_as_of
  FROM wh_settings k, unnest(p_queues, p_stream_ids, p_head_versions, p_through) AS h(queue, stream_id, head_version, through)
  JOIN wh_active_streams s ON s.stream_id = ANY (ARRAY[h.stream_id]) AND s.queue = h.queue
  JOIN wh_messages m
    ON m.stream_id = ANY (ARRAY[h.stream_id]) AND m.queue = h.queue AND m.version > h.head_version AND m.version <= h.through;
$$;
