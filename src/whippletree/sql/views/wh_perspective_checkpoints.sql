-- How far each perspective is with each stream, and what is the matter where it is not done.
CREATE OR REPLACE VIEW wh_perspective_checkpoints AS
SELECT COALESCE(c.stream_id, s.stream_id) AS stream_id, COALESCE(c.perspective_name, s.perspective_name) AS perspective_name,
  c.last_event_id, COALESCE(c.version, s.head_version) AS version,
  CASE
    WHEN s.stream_id IS NULL THEN 'Completed'
    WHEN is_leased(s.lease_expiry, clock_timestamp()) THEN 'Processing'
    WHEN s.error IS NOT NULL THEN 'Failed'
    ELSE 'Pending'
  END AS status,
  s.error, COALESCE(s.attempts, 0) AS attempts, is_parked(s.ready_at) AS parked,
  CASE WHEN s.error IS NOT NULL AND s.instance_id IS NULL THEN NULLIF(s.ready_at, 'infinity') END AS scheduled_for,
  s.instance_id, i.service_name, s.lease_expiry,
  COALESCE(c.created_at, s.moved_at) AS created_at, greatest(c.updated_at, s.moved_at) AS updated_at
FROM (
  -- The live generation goes by the name of the perspective, whichever that is.
  SELECT k.stream_id, k.version, k.last_event_id, k.created_at, k.updated_at, n.name || CASE
    WHEN n.generation = COALESCE(p.live_generation, 1) THEN '' ELSE '@' || n.generation END AS perspective_name
  FROM wh_checkpoints k
  CROSS JOIN LATERAL (SELECT split_part(k.perspective_name, '@', 1) AS name,
    COALESCE(NULLIF(split_part(k.perspective_name, '@', 2), ''), '1')::integer AS generation) n
  LEFT JOIN wh_perspectives p ON p.perspective_name = n.name
) c
FULL JOIN (
  SELECT a.*, substr(a.queue, 13) AS perspective_name FROM wh_active_streams a WHERE a.queue LIKE 'perspective/%'
) s ON s.perspective_name = c.perspective_name AND s.stream_id = c.stream_id
LEFT JOIN wh_service_instances i ON i.instance_id = s.instance_id
-- Of another generation than the live one, NAME@GENERATION, only what a rebuild has before it.
WHERE c.perspective_name NOT LIKE '%@%' OR s.stream_id IS NOT NULL;
CREATE OR REPLACE TRIGGER wh_perspective_checkpoints_update INSTEAD OF UPDATE ON wh_perspective_checkpoints
FOR EACH ROW EXECUTE FUNCTION update_checkpoint();
