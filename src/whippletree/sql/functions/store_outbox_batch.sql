-- Stores messages given as JSON, in the order given, inside the caller's transaction, from any client; returns their
-- versions. One bad message refuses all of them.
CREATE OR REPLACE FUNCTION store_outbox_batch(p_messages jsonb, p_as_of timestamptz DEFAULT NULL)
RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT store_outbox(r.stream_ids, r.stream_keys, r.message_ids, r.message_types, r.topics, r.payloads, r.headers,
    r.correlation_ids, r.causation_ids, r.scheduled_for, p_as_of)
  FROM read_storable_messages('outbox', p_messages) r;
$$;
