-- Stores messages for both queues, given as JSON, with all their writers' rows locked first and in order: see process_work.
CREATE OR REPLACE FUNCTION store_all_new_messages(p_outbox jsonb, p_inbox jsonb, p_as_of timestamptz)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM lock_writers(new_streams(p_outbox || p_inbox));
  RETURN QUERY SELECT * FROM store_new_messages('outbox', p_outbox, p_as_of);
  RETURN QUERY SELECT * FROM store_new_messages('inbox', p_inbox, p_as_of);
END;
$$;
