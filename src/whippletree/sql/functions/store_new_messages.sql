-- Stores messages given as JSON. One bad element is refused, with the reason, and the others are stored.
-- Outcomes: stored, duplicate, conflict, refused.
CREATE OR REPLACE FUNCTION store_new_messages(p_queue text, p_elements jsonb, p_as_of timestamptz)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_good record;
  v_outcomes text[];
BEGIN
  IF p_elements = '[]' THEN
    RETURN;
  END IF;
  IF jsonb_typeof(p_elements) IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION 'new % messages must be a JSON array', p_queue USING ERRCODE = 'WH004';
  END IF;
  SELECT array_agg(r.place) AS places, array_agg(r.stream_id) AS stream_ids, array_agg(r.stream_key) AS stream_keys,
    array_agg(r.message_id) AS message_ids, array_agg(r.message_type) AS message_types, array_agg(r.topic) AS topics,
    array_agg(r.payload) AS payloads, array_agg(r.headers) AS headers, array_agg(r.correlation_id) AS correlation_ids,
    array_agg(r.causation_id) AS causation_ids, array_agg(r.scheduled_for) AS scheduled_for
  INTO v_good
  FROM read_new_messages(p_queue, p_elements) r
  WHERE r.fault IS NULL;

  RETURN QUERY
  SELECT (work_answer('refused', p_queue, r.place, NULL, r.message_id, r.fault)).* FROM read_new_messages(p_queue, p_elements) r
  WHERE r.fault IS NOT NULL;
  IF v_good.places IS NULL THEN
    RETURN;
  END IF;

  IF p_queue = 'inbox' THEN
    v_outcomes := store_inbox(v_good.stream_ids, v_good.stream_keys, v_good.message_ids, v_good.message_types,
      v_good.topics, v_good.payloads, v_good.headers, v_good.correlation_ids, v_good.causation_ids,
      v_good.scheduled_for, p_as_of);
  ELSE
    PERFORM store_outbox(v_good.stream_ids, v_good.stream_keys, v_good.message_ids, v_good.message_types,
      v_good.topics, v_good.payloads, v_good.headers, v_good.correlation_ids, v_good.causation_ids,
      v_good.scheduled_for, p_as_of);
    v_outcomes := array_fill('stored'::text, ARRAY[cardinality(v_good.places)]);
  END IF;
  RETURN QUERY
  SELECT (work_answer(g.outcome, p_queue, g.place, NULL, g.message_id, NULL)).*
  FROM unnest(v_good.places, v_good.message_ids, v_outcomes) AS g(place, message_id, outcome);
END;
$$;
