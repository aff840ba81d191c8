-- Every perspective, or one: its generations, how many events of how many streams it has before it, and how its rebuild
-- stands. One that follows the feed has all numbers after its checkpoint before it; its rebuild counts as one stream until
-- it has caught up, or as many as it has unfinished parts.
CREATE OR REPLACE FUNCTION perspective_overview(p_perspective_name text DEFAULT NULL)
RETURNS TABLE (perspective_name text, live_generation integer, building_generation integer, previous_generation integer,
  waiting bigint, parked bigint, rebuilt bigint, rebuild_waiting bigint,
  rebuild_streams bigint, rebuild_parked bigint, rebuild_sorted bigint)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  WITH name AS (
    SELECT m.perspective_name FROM wh_perspective_mappings m UNION SELECT p.perspective_name FROM wh_perspectives p
  ), work AS (
    SELECT s.queue, sum(w.event_version - s.head_version)::bigint AS waiting, count(*) AS streams,
      count(*) FILTER (WHERE is_parked(s.ready_at)) AS parked, NULL::bigint AS done, NULL::bigint AS sorted
    FROM wh_active_streams s JOIN wh_streams w ON w.stream_id = s.stream_id
    WHERE s.queue LIKE 'perspective/%' GROUP BY s.queue
    UNION ALL
    SELECT s.subscriber_name, greatest(s.behind, 0), (s.state <> 'live')::integer, (s.state = 'parked')::integer, s.checkpoint,
      NULL
    FROM subscriber_overview() s WHERE s.subscriber_name ~ '^perspective/[^/]+$'
    UNION ALL
    SELECT r.queue, (SELECT last_number() + u.events FROM unnumbered_events() u) - r.done, r.streams, r.parked, r.done, r.sorted
    FROM rebuild_progress() r
  )
  SELECT n.perspective_name, p.live_generation, p.building_generation, p.previous_generation,
    COALESCE(l.waiting, 0), COALESCE(l.parked, 0),
    COALESCE(b.done, (SELECT COALESCE(sum(c.version), 0)::bigint FROM wh_checkpoints c
      WHERE c.perspective_name = checkpoint_name(n.perspective_name, p.building_generation) AND p.building_generation > 1)),
    COALESCE(b.waiting, 0), COALESCE(b.streams, 0), COALESCE(b.parked, 0),
    COALESCE(b.sorted, 0)
  FROM name n
  LEFT JOIN wh_perspectives p ON p.perspective_name = n.perspective_name
  LEFT JOIN work l ON l.queue = 'perspective/' || n.perspective_name
  LEFT JOIN work b ON b.queue = 'perspective/' || n.perspective_name || '@' || p.building_generation
  WHERE p_perspective_name IS NULL OR n.perspective_name = p_perspective_name
  ORDER BY n.perspective_name;
$$;
