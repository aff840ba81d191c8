-- Publishes in the caller's transaction, in one statement, so that it is whole even where the caller commits each one:
-- appends events, stores commands and copies of events to be sent, accepts commands to be handled here, and keeps what
-- is for later. Everything is JSON, from any client. Returns the versions of the events, then those of the outbox.
CREATE OR REPLACE FUNCTION publish_messages(
  p_events jsonb, p_outbox jsonb, p_inbox jsonb, p_scheduled jsonb, p_as_of timestamptz DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_versions bigint[] := '{}';
BEGIN
  -- All writers' rows first and in order, whatever is stored afterwards: see process_work. Messages of one kind lock their
  -- own in order.
  IF (p_events <> '[]')::integer + (p_outbox <> '[]')::integer + (p_inbox <> '[]')::integer > 1 THEN
    PERFORM lock_writers(new_streams(p_events || p_outbox || p_inbox));
  END IF;
  IF p_events <> '[]' THEN
    v_versions := append_events_batch(p_events, p_as_of);
  END IF;
  IF p_outbox <> '[]' THEN
    v_versions := v_versions || store_outbox_batch(p_outbox, p_as_of);
  END IF;
  IF p_inbox <> '[]' THEN
    PERFORM store_inbox_batch(p_inbox, p_as_of);
  END IF;
  IF p_scheduled <> '[]' THEN
    PERFORM schedule_messages(p_scheduled, COALESCE(p_as_of, clock_timestamp()));
  END IF;
  RETURN v_versions;
END;
$$;
