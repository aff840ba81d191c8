-- Why a thing does not move, in sentences: the id of a message, an event or a stream, the key of a stream, the name of
-- a perspective, a receptor or a subscriber, or a queue.
CREATE OR REPLACE FUNCTION why(p_thing text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_id uuid := uuid_or_null(p_thing);
  v_stream uuid := COALESCE(v_id, stream_id_of(p_thing));
  v_found boolean;
BEGIN
  IF p_thing IN ('outbox', 'inbox') THEN
    RETURN QUERY SELECT why_queue(p_thing, p_as_of);
    RETURN;
  END IF;
  RETURN QUERY SELECT why_queue(q, p_as_of) FROM (SELECT event_queues(k) AS q FROM unnest(ARRAY['perspective/*', 'receptor/*']) k) r
  WHERE split_part(q, '/', 2) = p_thing OR q = p_thing;
  v_found := FOUND;
  RETURN QUERY SELECT why_subscriber(n, p_as_of) FROM (
    SELECT unnest(ARRAY[p_thing, 'perspective/' || p_thing])
    UNION ALL
    (SELECT r.subscriber_name FROM wh_perspectives p CROSS JOIN LATERAL rebuild_parts(p.perspective_name, p.building_generation) r
     WHERE p_thing IN (p.perspective_name, p.perspective_name || '@' || p.building_generation,
       'perspective/' || p.perspective_name || '@' || p.building_generation) AND r.checkpoint < r.through
     ORDER BY r.error IS NULL, r.subscriber_name LIMIT 3)
  ) s(n);
  v_found := v_found OR FOUND;
  IF EXISTS (SELECT FROM wh_streams s WHERE s.stream_id = v_stream)
    OR EXISTS (SELECT FROM wh_active_streams s WHERE s.queue IN ('outbox', 'inbox') AND s.stream_id = v_stream) THEN
    RETURN QUERY SELECT why_any_queue(v_stream, p_as_of);
    v_found := true;
  END IF;
  IF v_id IS NULL OR v_found THEN
    RETURN QUERY SELECT why_scheduled(v_stream, p_as_of);
    v_found := v_found OR FOUND;
  END IF;
  IF v_id IS NOT NULL AND (NOT v_found OR EXISTS (SELECT FROM wh_messages m WHERE m.message_id = v_id AND m.version > 0)) THEN
    RETURN QUERY SELECT why_message(v_id, p_as_of);
  ELSIF NOT v_found THEN
    RETURN NEXT format('there is no stream, perspective, receptor of events or subscriber of the name %s', p_thing);
    RETURN NEXT 'receptors of commands work the inbox; `whippletree why inbox` says how it stands';
    RETURN QUERY SELECT why_uncommitted();
  END IF;
END;
$$;
