-- Reads all that a caller of process_work_batch reports, list by list.
CREATE OR REPLACE FUNCTION read_all_reports(p_instance_id uuid, p_lists jsonb)
RETURNS wh_report[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN ARRAY(
    SELECT r FROM (VALUES
      ('outbox', 'complete', 'p_outbox_completions'), ('outbox', 'fail', 'p_outbox_failures'),
      ('outbox', 'release', 'p_outbox_releases'), ('outbox', 'renew', 'p_renew_outbox_lease_ids'),
      ('inbox', 'complete', 'p_inbox_completions'), ('inbox', 'fail', 'p_inbox_failures'),
      ('inbox', 'release', 'p_inbox_releases'), ('inbox', 'renew', 'p_renew_inbox_lease_ids')
    ) AS m(queue, verb, list), read_reports(p_instance_id, m.queue, m.verb, p_lists -> m.list) r
    WHERE p_lists -> m.list <> '[]'
    UNION ALL
    SELECT r FROM (VALUES
      ('receptor', 'complete', 'p_receptor_completions'), ('receptor', 'fail', 'p_receptor_failures'),
      ('perspective', 'complete', 'p_perspective_completions'), ('perspective', 'fail', 'p_perspective_failures')
    ) AS m(kind, verb, list), read_event_reports(p_instance_id, m.kind, m.verb, p_lists -> m.list) r
    WHERE p_lists -> m.list <> '[]');
END;
$$;
