-- Stores messages to be published, in the order given, inside the caller's transaction; returns their versions.
-- One bad message refuses all of them: the caller's transaction is the unit. Storing never leases.
CREATE OR REPLACE FUNCTION store_outbox(
  p_stream_ids uuid[], p_stream_keys text[], p_message_ids uuid[], p_message_types text[], p_topics text[],
  p_payloads json[], p_headers json[], p_correlation_ids uuid[], p_causation_ids uuid[],
  p_scheduled_for timestamptz[], p_as_of timestamptz DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  IF cardinality(p_message_ids) = 1 THEN
    RETURN ARRAY[store_message('outbox', p_stream_ids[1], p_stream_keys[1], p_message_ids[1], p_message_types[1], p_topics[1],
      p_payloads[1]::text, p_headers[1]::text, p_correlation_ids[1], p_causation_ids[1], p_scheduled_for[1], p_as_of)];
  END IF;
  PERFORM require_storable(p_stream_ids, p_message_ids, p_message_types, p_payloads);
  RETURN store_messages('outbox', p_stream_ids, p_stream_keys, p_message_ids, p_message_types, p_topics, p_payloads,
    p_headers, p_correlation_ids, p_causation_ids, p_scheduled_for, p_as_of);
END;
$$;
