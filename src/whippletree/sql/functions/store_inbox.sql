-- Accepts received messages, each id once, in the order given, inside the caller's transaction. Returns for each message
-- stored, duplicate (this very message was accepted before) or conflict (its id was, with another body).
CREATE OR REPLACE FUNCTION store_inbox(
  p_stream_ids uuid[], p_stream_keys text[], p_message_ids uuid[], p_message_types text[], p_topics text[],
  p_payloads json[], p_headers json[], p_correlation_ids uuid[], p_causation_ids uuid[],
  p_scheduled_for timestamptz[], p_as_of timestamptz DEFAULT NULL)
RETURNS text[]
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_outcomes text[];
  v_new integer[];
BEGIN
  -- Most come alone and are new.
  IF cardinality(p_message_ids) = 1 THEN
    IF store_message('inbox', p_stream_ids[1], p_stream_keys[1], p_message_ids[1], p_message_types[1], p_topics[1],
      p_payloads[1]::text, p_headers[1]::text, p_correlation_ids[1], p_causation_ids[1], p_scheduled_for[1], p_as_of)
      IS NOT NULL
    THEN
      RETURN '{stored}';
    END IF;
  END IF;
  PERFORM require_storable(p_stream_ids, p_message_ids, p_message_types, p_payloads);
  -- Before the ids are remembered: a batch that stores into both queues holds the writers' rows by then.
  PERFORM lock_writers(p_stream_ids);
  v_outcomes := deduplicate(p_message_ids, p_message_types, p_payloads, COALESCE(p_as_of, clock_timestamp()));
  v_new := array_positions(v_outcomes, 'stored');
  IF cardinality(v_new) = cardinality(p_message_ids) THEN
    PERFORM store_messages('inbox', p_stream_ids, p_stream_keys, p_message_ids, p_message_types, p_topics, p_payloads,
      p_headers, p_correlation_ids, p_causation_ids, p_scheduled_for, p_as_of);
  ELSIF cardinality(v_new) > 0 THEN
    PERFORM store_messages('inbox', array_agg(p_stream_ids[i]), array_agg(p_stream_keys[i]),
      array_agg(p_message_ids[i]), array_agg(p_message_types[i]), array_agg(p_topics[i]), array_agg(p_payloads[i]),
      array_agg(p_headers[i]), array_agg(p_correlation_ids[i]), array_agg(p_causation_ids[i]),
      array_agg(p_scheduled_for[i]), p_as_of)
    FROM unnest(v_new) AS i;
  END IF;
  RETURN v_outcomes;
END;
$$;
