-- What waits in every queue that has work or is registered. waiting counts messages or events, the rest counts streams;
-- oldest is for how many seconds the first of what waits has been there.
CREATE OR REPLACE FUNCTION queue_overview(p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (queue text, waiting bigint, ready bigint, leased bigint, orphaned bigint, later bigint, parked bigint,
  failing bigint, oldest double precision, unowned bigint, worked boolean)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  WITH name AS (
    SELECT q AS queue FROM (VALUES ('outbox'), ('inbox')) v(q)
    UNION SELECT event_queues('perspective/*') UNION SELECT event_queues('receptor/*')
    UNION SELECT s.queue FROM wh_active_streams s
  ), message AS (
    SELECT m.queue, count(*) AS waiting, min(m.created_at) AS oldest FROM wh_messages m GROUP BY m.queue
    UNION ALL
    SELECT s.queue, sum(w.event_version - s.head_version), min(e.created_at)
    FROM wh_active_streams s
    JOIN wh_streams w ON w.stream_id = s.stream_id
    LEFT JOIN wh_event_store e ON e.stream_id = s.stream_id AND e.version = s.head_version + 1
    WHERE s.queue LIKE 'perspective/%' GROUP BY s.queue
    UNION ALL
    SELECT s.queue, sum(l.waiting), min(l.oldest)
    FROM wh_active_streams s CROSS JOIN LATERAL (
      SELECT count(*) AS waiting, min(l.created_at) AS oldest FROM wh_receptor_log l
      WHERE l.receptor_name = substr(s.queue, 10) AND l.stream_id = s.stream_id AND l.version > s.head_version) l
    WHERE s.queue LIKE 'receptor/%' GROUP BY s.queue
  ), stream AS (
    SELECT s.queue, count(*) FILTER (WHERE s.instance_id IS NULL AND is_ready(s.ready_at, s.lease_expiry, p_as_of)) AS ready,
      count(*) FILTER (WHERE is_leased(s.lease_expiry, p_as_of)) AS leased,
      count(*) FILTER (WHERE s.instance_id IS NOT NULL AND NOT is_leased(s.lease_expiry, p_as_of)) AS orphaned,
      count(*) FILTER (WHERE s.instance_id IS NULL AND NOT is_ready(s.ready_at, s.lease_expiry, p_as_of)
        AND NOT is_parked(s.ready_at)) AS later,
      count(*) FILTER (WHERE is_parked(s.ready_at)) AS parked,
      count(*) FILTER (WHERE s.error IS NOT NULL) AS failing,
      count(*) FILTER (WHERE s.instance_id IS NULL AND p.instance_id IS NULL AND NOT is_parked(s.ready_at)) AS unowned
    FROM wh_active_streams s
    LEFT JOIN wh_partitions p
      ON p.partition_number = partition_of(s.stream_hash, (SELECT partition_count FROM wh_settings))
    GROUP BY s.queue
  )
  SELECT n.queue, COALESCE(m.waiting, 0)::bigint, COALESCE(s.ready, 0), COALESCE(s.leased, 0),
    COALESCE(s.orphaned, 0), COALESCE(s.later, 0), COALESCE(s.parked, 0), COALESCE(s.failing, 0),
    EXTRACT(epoch FROM p_as_of - m.oldest)::double precision, COALESCE(s.unowned, 0),
    EXISTS (SELECT FROM wh_service_instances i
      WHERE works_queue(i.queues, n.queue) AND NOT i.draining AND NOT is_gone(i, p_as_of))
  FROM name n LEFT JOIN message m ON m.queue = n.queue LEFT JOIN stream s ON s.queue = n.queue
  ORDER BY CASE n.queue WHEN 'outbox' THEN 1 WHEN 'inbox' THEN 2 ELSE 3 END, n.queue;
$$;
