-- Lets a role read every table and view of ours, payloads included, and change nothing.
CREATE OR REPLACE FUNCTION grant_viewer(p_role name)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_relation regclass;
BEGIN
  PERFORM grant_functions(p_role, ARRAY['read_events', 'stream_id_of', 'is_uuid', 'is_parked', 'is_leased', 'partition_of', 'instance_overview', 'queue_overview',
    'count_dead_letters', 'dead_letters', 'stopped_streams', 'stream_contents', 'why', 'verify_streams', 'verify_finished',
    'verify_events', 'verify_perspectives', 'verify_feed', 'verify_subscribers', 'ailments', 'read_feed', 'last_number',
    'subscriber_lock', 'subscriber_locks', 'is_gone', 'session_lock_key', 'subscriber_overview', 'number_events',
    'perspective_overview', 'stream_names']);
  FOR v_relation IN
    SELECT c.oid FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'wh\_%' AND c.relkind IN ('r', 'p', 'v')
  LOOP
    EXECUTE format('GRANT SELECT ON %s TO %I', v_relation, p_role);
  END LOOP;
END;
$$;
