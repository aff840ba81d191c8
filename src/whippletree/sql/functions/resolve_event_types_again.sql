-- Resolves every known type once more, after what is registered has changed. The caller holds the lock on event types.
CREATE OR REPLACE FUNCTION resolve_event_types_again()
RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  UPDATE wh_event_types t SET queues = queues_of_type(t.event_type) WHERE t.queues <> queues_of_type(t.event_type);
  -- Changes nothing, and shows those who began before: see require_recent_snapshot.
  UPDATE wh_settings SET partition_count = partition_count;
$$;
