-- Stores scheduled messages that are due into their queues, the earliest first; each is numbered in its stream now.
-- Returns the seconds until the next is due, NULL when there is none. Writes nothing when nothing is due.
CREATE OR REPLACE FUNCTION store_due_messages(p_limit integer DEFAULT 500, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS double precision
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_outbox jsonb;
  v_inbox jsonb;
BEGIN
  IF EXISTS (SELECT FROM wh_scheduled_messages WHERE NOT is_ahead(due_at, p_as_of))
    -- One at a time, so that two do not change the order in which a stream's messages were due.
    AND pg_try_advisory_xact_lock(lock_key('scheduled messages')) THEN
    WITH due AS MATERIALIZED (
      SELECT message_id FROM wh_scheduled_messages WHERE NOT is_ahead(due_at, p_as_of)
      ORDER BY due_at, message_id
      LIMIT p_limit
      -- One that is just being cancelled waits for the next time, and keeps nobody waiting.
      FOR UPDATE SKIP LOCKED
    ), gone AS (
      DELETE FROM wh_scheduled_messages m USING due WHERE m.message_id = due.message_id RETURNING m.*
    )
    SELECT COALESCE(jsonb_agg(message ORDER BY due_at, message_id) FILTER (WHERE queue = 'outbox'), '[]'),
      COALESCE(jsonb_agg(message ORDER BY due_at, message_id) FILTER (WHERE queue = 'inbox'), '[]')
    INTO v_outbox, v_inbox
    FROM gone;
    PERFORM publish_messages('[]', v_outbox, v_inbox, '[]', p_as_of);
  END IF;
  RETURN (SELECT greatest(0, extract(epoch FROM due_at - p_as_of)) FROM wh_scheduled_messages ORDER BY due_at LIMIT 1);
END;
$$;
