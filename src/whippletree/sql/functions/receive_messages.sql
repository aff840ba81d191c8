-- Accepts messages that a transport brought: what store_inbox does, and a conflict is kept among the dead letters, so
-- that its delivery need not come again. Called with nothing it says whether the inbox can be reached.
CREATE OR REPLACE FUNCTION receive_messages(
  p_stream_ids uuid[], p_stream_keys text[], p_message_ids uuid[], p_message_types text[], p_topics text[],
  p_payloads json[], p_headers json[], p_correlation_ids uuid[], p_causation_ids uuid[],
  p_scheduled_for timestamptz[], p_as_of timestamptz DEFAULT NULL)
RETURNS text[]
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_outcomes text[];
BEGIN
  IF cardinality(p_message_ids) = 0 THEN
    PERFORM FROM wh_messages, wh_message_deduplication LIMIT 1;
    RETURN '{}';
  END IF;
  v_outcomes := store_inbox(p_stream_ids, p_stream_keys, p_message_ids, p_message_types, p_topics, p_payloads,
    p_headers, p_correlation_ids, p_causation_ids, p_scheduled_for, p_as_of);
  IF 'conflict' = ANY (v_outcomes) THEN
    PERFORM park_deliveries(array_agg(p_message_ids[i]), array_agg(p_stream_ids[i]), array_agg(p_message_types[i]),
      array_agg(p_topics[i]), array_agg(p_payloads[i]), array_agg(p_headers[i]), array_agg(p_correlation_ids[i]),
      array_agg(p_causation_ids[i]), array_agg('its id was accepted before with another type or payload'::text),
      'conflict', COALESCE(p_as_of, clock_timestamp()))
    FROM unnest(array_positions(v_outcomes, 'conflict')) AS i;
  END IF;
  RETURN v_outcomes;
END;
$$;
