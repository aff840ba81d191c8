-- New messages given as JSON, read once, because reading costs more than storing: one row, an array per column. One bad
-- message refuses all of them.
CREATE OR REPLACE FUNCTION read_storable_messages(p_queue text, p_messages jsonb)
RETURNS TABLE (
  stream_ids uuid[], stream_keys text[], message_ids uuid[], message_types text[], topics text[], payloads json[],
  headers json[], correlation_ids uuid[], causation_ids uuid[], scheduled_for timestamptz[])
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_place bigint;
  v_fault text;
BEGIN
  SELECT array_agg(r.stream_id), array_agg(r.stream_key), array_agg(r.message_id), array_agg(r.message_type),
    array_agg(r.topic), array_agg(r.payload), array_agg(r.headers), array_agg(r.correlation_id),
    array_agg(r.causation_id), array_agg(r.scheduled_for),
    min(r.place) FILTER (WHERE r.fault IS NOT NULL), (array_agg(r.fault) FILTER (WHERE r.fault IS NOT NULL))[1]
  INTO stream_ids, stream_keys, message_ids, message_types, topics, payloads, headers, correlation_ids, causation_ids,
    scheduled_for, v_place, v_fault
  FROM read_new_messages(p_queue, p_messages) r;
  IF v_fault IS NOT NULL THEN
    RAISE EXCEPTION 'message % cannot be stored: %', v_place, v_fault USING ERRCODE = 'WH004';
  END IF;
  RETURN NEXT;
END;
$$;
