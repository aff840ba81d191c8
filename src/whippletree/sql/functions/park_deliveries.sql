-- Keeps deliveries that cannot wait in the inbox among its dead letters, with the reason, where an operator sees them.
-- The same delivery is kept once, however often it comes. version is 0: they have no place in a stream.
CREATE OR REPLACE FUNCTION park_deliveries(
  p_message_ids uuid[], p_stream_ids uuid[], p_message_types text[], p_topics text[], p_payloads json[],
  p_headers json[], p_correlation_ids uuid[], p_causation_ids uuid[], p_errors text[], p_reason text,
  p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  -- One at a time, so that none is kept twice. It is rare.
  PERFORM pg_advisory_xact_lock(lock_key('deliveries'));
  INSERT INTO wh_dead_letters (queue, stream_id, version, message_id, message_type, topic, payload, headers,
    correlation_id, causation_id, created_at, attempts, error, reason, died_at)
  SELECT 'inbox', COALESCE(d.stream_id, d.message_id), 0, d.message_id, d.message_type, d.topic, d.payload, d.headers,
    d.correlation_id, d.causation_id, p_as_of, 0, d.error, p_reason, p_as_of
  FROM (
    SELECT DISTINCT ON (u.message_id, u.payload::text) u.*
    FROM unnest(p_message_ids, p_stream_ids, p_message_types, p_topics, p_payloads, p_headers, p_correlation_ids,
        p_causation_ids, p_errors) WITH ORDINALITY
      AS u(message_id, stream_id, message_type, topic, payload, headers, correlation_id, causation_id, error, place)
    ORDER BY u.message_id, u.payload::text, u.place
  ) d
  WHERE NOT EXISTS (SELECT FROM wh_dead_letters k
    WHERE k.message_id = d.message_id AND k.queue = 'inbox' AND k.reason = p_reason AND k.payload::text = d.payload::text);
END;
$$;
