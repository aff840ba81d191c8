-- Which receptor has handled which event, and what is the matter where it has not.
CREATE OR REPLACE VIEW wh_receptor_processing AS
SELECT l.event_id, l.receptor_name, l.stream_id, l.version,
  CASE
    WHEN l.skipped IS NOT NULL THEN 'Skipped'
    WHEN l.processed_at IS NOT NULL THEN 'Completed'
    WHEN l.version <= s.leased_through AND is_leased(s.lease_expiry, clock_timestamp()) THEN 'Processing'
    WHEN h.is_head AND s.error IS NOT NULL THEN 'Failed'
    ELSE 'Pending'
  END AS status,
  CASE WHEN l.processed_at IS NULL AND h.is_head THEN s.attempts ELSE l.attempts END AS attempts,
  CASE WHEN l.processed_at IS NULL AND h.is_head THEN s.error ELSE l.skipped END AS error,
  h.is_head AND is_parked(s.ready_at) AS parked,
  COALESCE(l.instance_id, CASE WHEN l.version <= s.leased_through THEN s.instance_id END) AS instance_id,
  CASE WHEN l.processed_at IS NULL AND l.version <= s.leased_through THEN s.lease_expiry END AS lease_expiry,
  l.created_at, l.processed_at
FROM wh_receptor_log l
LEFT JOIN wh_active_streams s
  ON s.queue = 'receptor/' || l.receptor_name AND s.stream_id = l.stream_id AND l.processed_at IS NULL
CROSS JOIN LATERAL (SELECT s.stream_id IS NOT NULL AND NOT EXISTS (
  SELECT FROM wh_receptor_log f WHERE f.receptor_name = l.receptor_name AND f.stream_id = l.stream_id
    AND f.version > s.head_version AND f.version < l.version) AS is_head) h;
