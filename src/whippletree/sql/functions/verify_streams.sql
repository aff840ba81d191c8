-- Messages and streams against each other: nothing missing, nothing out of place, nothing that nobody could claim.
CREATE OR REPLACE FUNCTION verify_streams()
RETURNS TABLE (promise text, subject text, problem text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET work_mem = '64MB'
AS $$
  WITH waiting AS (
    SELECT m.queue, m.stream_id, min(m.version) AS first, max(m.version) AS last, count(*) AS count,
      bool_or(m.message_id = m.stream_id) AS alone
    FROM wh_messages m GROUP BY m.queue, m.stream_id
  )
  SELECT 'versions are dense', w.queue || ' ' || described_stream(w.stream_id),
    format('versions %s to %s are %s messages', w.first, w.last, w.count)
  FROM waiting w WHERE w.last - w.first + 1 <> w.count
  UNION ALL
  SELECT 'work is claimable', w.queue || ' ' || described_stream(w.stream_id), 'messages wait, but no claim would find them'
  FROM waiting w WHERE NOT EXISTS (
    SELECT FROM wh_active_streams s WHERE s.queue = w.queue AND s.stream_id = w.stream_id AND s.head_version < w.first)
  UNION ALL
  SELECT 'nothing is lost', w.queue || ' ' || described_stream(w.stream_id),
    format('the head is at %s, but the first message is %s', s.head_version, w.first)
  FROM waiting w JOIN wh_active_streams s ON s.queue = w.queue AND s.stream_id = w.stream_id
  WHERE s.head_version < w.first - 1
  UNION ALL
  SELECT 'versions are counted', w.queue || ' ' || described_stream(w.stream_id),
    format('the last message is %s, the counter says %s', w.last, v.counted)
  FROM waiting w JOIN LATERAL (
    SELECT CASE w.queue WHEN 'outbox' THEN s.outbox_version ELSE s.inbox_version END AS counted
    FROM wh_streams s WHERE s.stream_id = w.stream_id) v ON v.counted <> w.last
  WHERE NOT w.alone
  UNION ALL
  SELECT 'a head is in its stream', s.queue || ' ' || described_stream(s.stream_id),
    format('its head is after %s, but the counter says %s', s.head_version, v.counted)
  FROM wh_active_streams s JOIN LATERAL (
    SELECT CASE s.queue WHEN 'outbox' THEN w.outbox_version WHEN 'inbox' THEN w.inbox_version ELSE w.event_version END AS counted
    FROM wh_streams w WHERE w.stream_id = s.stream_id) v ON s.head_version > v.counted
  UNION ALL
  SELECT 'a leased stream is not parked', s.queue || ' ' || described_stream(s.stream_id),
    format('it is leased until %s, and parked', s.lease_expiry)
  FROM wh_active_streams s WHERE is_leased(s.lease_expiry, clock_timestamp()) AND is_parked(s.ready_at)
  UNION ALL
  SELECT 'a lease is whole', s.queue || ' ' || described_stream(s.stream_id), 'its holder, token, end, versions or attempts do not fit'
  FROM wh_active_streams s WHERE num_nonnulls(s.instance_id, s.lease_expiry, s.lease_token, s.leased_through) NOT IN (0, 4)
    OR s.leased_through <= s.head_version OR least(s.head_version, s.attempts) < 0
  UNION ALL
  SELECT 'a stream has one partition', s.queue || ' ' || described_stream(s.stream_id),
    format('it hashes to %s, not to %s', stream_hash(s.stream_id), s.stream_hash)
  FROM wh_active_streams s WHERE s.stream_hash <> stream_hash(s.stream_id)
  UNION ALL
  SELECT 'every partition exists', 'partitions', format('%s of %s are there', count(p.partition_number), k.partition_count)
  FROM wh_settings k LEFT JOIN wh_partitions p ON p.partition_number < k.partition_count
  GROUP BY k.partition_count HAVING count(p.partition_number) <> k.partition_count
  UNION ALL
  SELECT 'every owner is an instance', 'partition ' || min(p.partition_number),
    format('it and %s others belong to %s, which is not there', count(*) - 1, p.instance_id)
  FROM wh_partitions p
  WHERE NOT EXISTS (SELECT FROM wh_service_instances i WHERE i.instance_id = p.instance_id) AND p.instance_id IS NOT NULL
  GROUP BY p.instance_id;
$$;
