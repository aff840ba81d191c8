-- One batch of work in one call, one transaction, one round trip, from any language: reports on what was claimed, new
-- messages, renewals; and new work in return. Producers use the flag skip_claim. Every element has its own result;
-- what was refused stands in rejected, with the reason. A limit of 0 takes nothing now; NULL says that the caller does not
-- work that kind at all, so that nothing of it waits for it. Order of steps and of locks: see process_work.
CREATE OR REPLACE FUNCTION process_work_batch(
  p_instance_id uuid, p_service_name text, p_host_name text, p_process_id integer, p_metadata jsonb DEFAULT '{}',
  p_outbox_completions jsonb DEFAULT '[]', p_outbox_failures jsonb DEFAULT '[]',
  p_inbox_completions jsonb DEFAULT '[]', p_inbox_failures jsonb DEFAULT '[]',
  p_receptor_completions jsonb DEFAULT '[]', p_receptor_failures jsonb DEFAULT '[]',
  p_perspective_completions jsonb DEFAULT '[]', p_perspective_failures jsonb DEFAULT '[]',
  p_new_outbox_messages jsonb DEFAULT '[]', p_new_inbox_messages jsonb DEFAULT '[]',
  p_renew_outbox_lease_ids jsonb DEFAULT '[]', p_renew_inbox_lease_ids jsonb DEFAULT '[]',
  p_outbox_releases jsonb DEFAULT '[]', p_inbox_releases jsonb DEFAULT '[]', p_flags text[] DEFAULT '{}',
  p_outbox_limit integer DEFAULT 100, p_inbox_limit integer DEFAULT 100, p_receptor_limit integer DEFAULT 100,
  p_perspective_limit integer DEFAULT 100, p_partition_count integer DEFAULT NULL,
  p_max_partitions_per_instance integer DEFAULT NULL, p_lease_seconds double precision DEFAULT 300,
  p_stale_threshold_seconds double precision DEFAULT 600, p_max_attempts integer DEFAULT 10,
  p_as_of timestamptz DEFAULT NULL)
RETURNS TABLE (
  claimed_outbox_messages jsonb, claimed_inbox_messages jsonb, claimed_receptor_work jsonb,
  claimed_perspective_work jsonb, assigned_partitions jsonb, rejected jsonb, duplicates jsonb)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_reports wh_report[];
  v_work wh_work[];
BEGIN
  PERFORM require_identity(p_instance_id, p_service_name, p_host_name, p_process_id);
  PERFORM require_partition_count(p_partition_count);
  PERFORM require_flags(p_flags);
  PERFORM require_limits(p_lease_seconds, p_stale_threshold_seconds, p_max_attempts, p_max_partitions_per_instance,
    ARRAY[p_outbox_limit, p_inbox_limit, p_receptor_limit, p_perspective_limit]);
  v_reports := read_all_reports(p_instance_id, jsonb_build_object(
    'p_outbox_completions', p_outbox_completions, 'p_outbox_failures', p_outbox_failures,
    'p_outbox_releases', p_outbox_releases, 'p_renew_outbox_lease_ids', p_renew_outbox_lease_ids,
    'p_inbox_completions', p_inbox_completions, 'p_inbox_failures', p_inbox_failures,
    'p_inbox_releases', p_inbox_releases, 'p_renew_inbox_lease_ids', p_renew_inbox_lease_ids,
    'p_receptor_completions', p_receptor_completions, 'p_receptor_failures', p_receptor_failures,
    'p_perspective_completions', p_perspective_completions, 'p_perspective_failures', p_perspective_failures));
  v_work := ARRAY(SELECT w FROM process_reports(p_instance_id, p_service_name, p_host_name, p_process_id, p_metadata,
    p_new_outbox_messages, p_new_inbox_messages, v_reports, p_flags,
    ARRAY[p_outbox_limit, p_inbox_limit, p_receptor_limit, p_perspective_limit], p_max_partitions_per_instance,
    p_lease_seconds, p_stale_threshold_seconds, p_max_attempts, p_as_of) w);
  RETURN QUERY SELECT claimed_json(v_work, 'outbox'), claimed_json(v_work, 'inbox'),
    claimed_events_json(v_work, 'receptor'), claimed_events_json(v_work, 'perspective'),
    COALESCE((SELECT w.payload::jsonb FROM unnest(v_work) w WHERE w.kind = 'partitions'), '[]'),
    rejected_json(v_work, v_reports), duplicates_json(v_work);
END;
$$;
