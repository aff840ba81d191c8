-- Where a message or an event is and what keeps it there, in sentences.
CREATE OR REPLACE FUNCTION why_message(p_message_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_message record;
  v_found boolean := false;
BEGIN
  FOR v_message IN
    SELECT m.*, m.version - s.head_version AS place
    FROM wh_messages m JOIN wh_active_streams s ON s.queue = m.queue AND s.stream_id = m.stream_id
    WHERE m.message_id = p_message_id AND m.version > 0 ORDER BY m.queue
  LOOP
    v_found := true;
    IF v_message.stream_id = v_message.message_id THEN
      RETURN NEXT format('message %s (%s) waits in the %s, without a stream: in no order', p_message_id, v_message.message_type,
        v_message.queue);
    ELSE
      RETURN NEXT format('message %s (%s) is version %s, %s in line, of stream %s in the %s', p_message_id,
        v_message.message_type, v_message.version, spoken_place(v_message.place),
        described_stream(v_message.stream_id), v_message.queue);
    END IF;
    RETURN QUERY SELECT why_stream(v_message.queue, v_message.stream_id, p_as_of);
  END LOOP;
  RETURN QUERY
  SELECT format('message %s (%s) was given up in %s %s ago: %s%s', p_message_id, d.message_type, d.queue,
    spoken_time(p_as_of - d.died_at), d.reason, COALESCE('; its error was ' || d.error, ''))
  FROM wh_dead_letters d WHERE d.message_id = p_message_id;
  v_found := v_found OR FOUND;
  RETURN QUERY SELECT why_event(p_message_id, p_as_of);
  v_found := v_found OR FOUND;
  RETURN QUERY SELECT why_scheduled(p_message_id, p_as_of);
  v_found := v_found OR FOUND;
  IF v_found THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT format('message %s was received %s ago, and is finished', p_message_id, spoken_time(p_as_of - d.first_seen_at))
  FROM wh_message_deduplication d WHERE d.message_id = p_message_id;
  IF NOT FOUND THEN
    RETURN NEXT format('nothing of the id %s waits here: it is finished, was never stored, or its transaction is not '
      'committed', p_message_id);
    RETURN QUERY SELECT why_uncommitted();
  END IF;
END;
$$;
