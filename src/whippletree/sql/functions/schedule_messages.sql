-- Keeps messages until they are due. Each element is a message with its queue, its due_at and perhaps its schedule_key.
CREATE OR REPLACE FUNCTION schedule_messages(p_messages jsonb, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_bad record;
BEGIN
  -- Looked at now: when it is due there is nobody left to tell.
  SELECT r.place, r.fault INTO v_bad FROM read_new_messages('scheduled', p_messages) r WHERE r.fault IS NOT NULL LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'message % cannot be stored: %', v_bad.place, v_bad.fault USING ERRCODE = 'WH004';
  END IF;
  INSERT INTO wh_scheduled_messages (message_id, due_at, created_at, queue, schedule_key, message)
  SELECT (m ->> 'message_id')::uuid, (m ->> 'due_at')::timestamptz, p_as_of, m ->> 'queue', m ->> 'schedule_key',
    m - '{queue,due_at,schedule_key}'::text[]
  FROM jsonb_array_elements(p_messages) AS m
  ORDER BY m ->> 'schedule_key', m ->> 'message_id';
END;
$$;
