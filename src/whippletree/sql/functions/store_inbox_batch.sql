-- Accepts received messages given as JSON, each id once, in the order given, inside the caller's transaction, from any
-- client. Returns for each message stored, duplicate or conflict. One bad message refuses all of them.
CREATE OR REPLACE FUNCTION store_inbox_batch(p_messages jsonb, p_as_of timestamptz DEFAULT NULL)
RETURNS text[]
LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT store_inbox(r.stream_ids, r.stream_keys, r.message_ids, r.message_types, r.topics, r.payloads, r.headers,
    r.correlation_ids, r.causation_ids, r.scheduled_for, p_as_of)
  FROM read_storable_messages('inbox', p_messages) r;
$$;
