-- One batch of work in one call, one transaction, one round trip, from any language: reports on what was claimed, new
-- messages, renewals; and new work in return. Producers use the flag skip_claim. Every element has its own result;
-- what was refused stands in rejected, with the reason. Order of steps and of locks: see process_work.
CREATE OR REPLACE FUNCTION process_work_batch(
  p_instance_id uuid, p_service_name text, p_host_name text, p_process_id integer, p_metadata jsonb DEFAULT '{}',
  p_outbox_completions jsonb DEFAULT '[]', p_outbox_failures jsonb DEFAULT '[]',
  p_inbox_completions jsonb DEFAULT '[]', p_inbox_failures jsonb DEFAULT '[]',
  p_new_outbox_messages jsonb DEFAULT '[]', p_new_inbox_messages jsonb DEFAULT '[]',
  p_renew_outbox_lease_ids jsonb DEFAULT '[]', p_renew_inbox_lease_ids jsonb DEFAULT '[]',
  p_outbox_releases jsonb DEFAULT '[]', p_inbox_releases jsonb DEFAULT '[]',
  p_flags text[] DEFAULT '{}', p_outbox_limit integer DEFAULT 100, p_inbox_limit integer DEFAULT 100,
  p_partition_count integer DEFAULT NULL, p_max_partitions_per_instance integer DEFAULT NULL,
  p_lease_seconds double precision DEFAULT 300, p_stale_threshold_seconds double precision DEFAULT 600,
  p_max_attempts integer DEFAULT 10, p_as_of timestamptz DEFAULT NULL)
RETURNS TABLE (
  claimed_outbox_messages jsonb, claimed_inbox_messages jsonb, claimed_receptor_work jsonb,
  claimed_perspective_work jsonb, assigned_partitions jsonb, rejected jsonb, duplicates jsonb)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_reports wh_report[];
  v_work wh_work[];
BEGIN
  PERFORM require_partition_count(p_partition_count);
  PERFORM require_flags(p_flags);
  v_reports := ARRAY(
    SELECT r FROM (VALUES
      ('outbox', 'complete', p_outbox_completions), ('outbox', 'fail', p_outbox_failures),
      ('outbox', 'release', p_outbox_releases), ('outbox', 'renew', p_renew_outbox_lease_ids),
      ('inbox', 'complete', p_inbox_completions), ('inbox', 'fail', p_inbox_failures),
      ('inbox', 'release', p_inbox_releases), ('inbox', 'renew', p_renew_inbox_lease_ids)
    ) AS handed(queue, verb, elements), read_reports(p_instance_id, handed.queue, handed.verb, handed.elements) r);
  v_work := ARRAY(SELECT w FROM process_reports(p_instance_id, p_service_name, p_host_name, p_process_id, p_metadata,
    p_new_outbox_messages, p_new_inbox_messages, v_reports, p_flags, p_outbox_limit, p_inbox_limit,
    p_max_partitions_per_instance, p_lease_seconds, p_stale_threshold_seconds, p_max_attempts, p_as_of) w);
  RETURN QUERY SELECT claimed_json(v_work, 'outbox'), claimed_json(v_work, 'inbox'), '[]'::jsonb, '[]'::jsonb,
    (SELECT w.payload::jsonb FROM unnest(v_work) w WHERE w.kind = 'partitions'),
    rejected_json(v_work, v_reports), duplicates_json(v_work);
END;
$$;
