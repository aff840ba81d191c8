-- Lets a role store messages and events, in every way there is, and wait until a perspective has them. It reads no
-- message and claims nothing.
CREATE OR REPLACE FUNCTION grant_producer(p_role name)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM grant_functions(p_role, ARRAY['store_message', 'store_outbox', 'store_outbox_batch', 'store_inbox',
    'store_inbox_batch', 'receive_messages', 'append_event', 'append_events', 'append_events_batch', 'publish_messages',
    'cancel_message', 'stream_id_of', 'is_uuid', 'awaited_version', 'has_applied', 'why_not_applied',
    -- The same for perspectives that follow the feed, in which the event has to have its number.
    'follows_feed', 'number_events', 'last_number', 'awaited_number', 'has_followed',
    'why_subscriber']);
  EXECUTE format('GRANT INSERT ON wh_outbox, wh_inbox TO %I', p_role);
  -- With these every process checks at its start that the schema is as new as itself.
  EXECUTE format('GRANT SELECT ON wh_migrations, wh_installation TO %I', p_role);
END;
$$;
