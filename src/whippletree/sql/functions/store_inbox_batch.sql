-- Accepts received messages given as JSON, each id once, in the order given, inside the caller's transaction, from any
-- client. Returns for each message stored, duplicate or conflict. One bad message refuses all of them.
CREATE OR REPLACE FUNCTION store_inbox_batch(p_messages jsonb, p_as_of timestamptz DEFAULT NULL)
RETURNS text[]
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_read record;
BEGIN
  -- Read once: reading costs more than storing.
  SELECT array_agg(r.stream_id) AS stream_ids, array_agg(r.stream_key) AS stream_keys,
    array_agg(r.message_id) AS message_ids, array_agg(r.message_type) AS message_types, array_agg(r.topic) AS topics,
    array_agg(r.payload) AS payloads, array_agg(r.headers) AS headers, array_agg(r.correlation_id) AS correlation_ids,
    array_agg(r.causation_id) AS causation_ids, array_agg(r.scheduled_for) AS scheduled_for,
    min(r.place) FILTER (WHERE r.fault IS NOT NULL) AS bad_place,
    (array_agg(r.fault) FILTER (WHERE r.fault IS NOT NULL))[1] AS fault
  INTO v_read
  FROM read_new_messages('inbox', p_messages) r;
  IF v_read.fault IS NOT NULL THEN
    RAISE EXCEPTION 'message % cannot be stored: %', v_read.bad_place, v_read.fault USING ERRCODE = 'WH004';
  END IF;
  RETURN store_inbox(v_read.stream_ids, v_read.stream_keys, v_read.message_ids, v_read.message_types, v_read.topics,
    v_read.payloads, v_read.headers, v_read.correlation_ids, v_read.causation_ids, v_read.scheduled_for, p_as_of);
END;
$$;
