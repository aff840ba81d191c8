-- What of a stream, or of an id, is kept for a later time, the next first.
CREATE OR REPLACE FUNCTION why_scheduled(p_id uuid, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT format('message %s (%s)%s is kept for a later time: %s', m.message_id, m.message ->> 'message_type',
    COALESCE(' of stream ' || COALESCE(m.message ->> 'stream_key', m.message ->> 'stream_id'), ''),
    CASE WHEN is_ahead(m.due_at, p_as_of) THEN format('it goes to the %s in %s', m.queue, spoken_time(m.due_at - p_as_of))
      ELSE format('it has been due for %s, and goes to the %s as soon as %s', spoken_time(p_as_of - m.due_at), m.queue,
        CASE WHEN EXISTS (SELECT FROM wh_service_instances) THEN 'an instance looks'
          ELSE 'an instance runs; start one with `whippletree run`' END) END)
  FROM wh_scheduled_messages m
  WHERE m.message_id = p_id
    OR COALESCE(uuid_or_null(m.message ->> 'stream_id'), stream_id_of(m.message ->> 'stream_key')) = p_id
  ORDER BY m.due_at
  LIMIT 5;
$$;
