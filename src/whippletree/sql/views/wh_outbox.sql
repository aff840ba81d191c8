-- The outbox as people see and write it: what waits to be published, and what debug mode kept.
CREATE OR REPLACE VIEW wh_outbox AS
SELECT m.message_id, NULLIF(m.stream_id, m.message_id) AS stream_id, w.stream_key, m.version,
  partition_of(s.stream_hash, (SELECT partition_count FROM wh_settings)) AS partition_number,
  m.message_type, m.topic, m.payload, m.headers, m.correlation_id, m.causation_id,
  -- Stored 1, Published 2, Completed 4, Failed 8.
  CASE WHEN h.is_head AND s.error IS NOT NULL THEN 9 ELSE 1 END AS status,
  CASE WHEN h.is_head THEN s.attempts ELSE 0 END AS attempts,
  CASE WHEN h.is_head THEN s.error END AS error,
  CASE WHEN m.version <= s.leased_through THEN s.instance_id END AS instance_id,
  CASE WHEN m.version <= s.leased_through THEN s.lease_expiry END AS lease_expiry,
  CASE WHEN h.is_head AND s.error IS NOT NULL AND s.instance_id IS NULL THEN NULLIF(s.ready_at, 'infinity')
    ELSE m.scheduled_for END AS scheduled_for,
  h.is_head AND is_parked(s.ready_at) AS parked,
  m.created_at, NULL::timestamptz AS processed_at
FROM wh_messages m
LEFT JOIN wh_active_streams s ON s.queue = 'outbox' AND s.stream_id = m.stream_id
LEFT JOIN wh_streams w ON w.stream_id = m.stream_id
CROSS JOIN LATERAL (SELECT m.version = s.head_version + 1 AS is_head) h
-- So that an id is found by the index of ids, which asks for it.
WHERE m.queue = 'outbox' AND m.version > 0
UNION ALL
SELECT f.message_id, NULLIF(f.stream_id, f.message_id), w.stream_key, f.version, f.partition_number,
  f.message_type, f.topic, f.payload, f.headers, f.correlation_id, f.causation_id,
  3, f.attempts, NULL, NULL, NULL, f.scheduled_for, false, f.created_at, f.processed_at
FROM wh_finished_messages f
LEFT JOIN wh_streams w ON w.stream_id = f.stream_id
WHERE f.queue = 'outbox';
CREATE OR REPLACE TRIGGER wh_outbox_insert INSTEAD OF INSERT ON wh_outbox
FOR EACH ROW EXECUTE FUNCTION insert_message('outbox');
