-- Stores messages given as JSON, in the order given, inside the caller's transaction, from any client; returns their
-- versions. One bad message refuses all of them.
CREATE OR REPLACE FUNCTION store_outbox_batch(p_messages jsonb, p_as_of timestamptz DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_fault record;
  v_versions bigint[];
BEGIN
  SELECT r.place, r.fault INTO v_fault FROM read_new_messages('outbox', p_messages) r WHERE r.fault IS NOT NULL LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'message % cannot be stored: %', v_fault.place, v_fault.fault USING ERRCODE = 'WH004';
  END IF;
  SELECT store_outbox(array_agg(r.stream_id), array_agg(r.stream_key), array_agg(r.message_id),
    array_agg(r.message_type), array_agg(r.topic), array_agg(r.payload), array_agg(r.headers),
    array_agg(r.correlation_id), array_agg(r.causation_id), array_agg(r.scheduled_for), p_as_of)
  INTO v_versions
  FROM read_new_messages('outbox', p_messages) r;
  RETURN v_versions;
END;
$$;
