-- How many committed events have no number in the feed yet, and since when the oldest of them is there. Nobody numbers
-- while nobody reads, so without these a subscriber that nobody follows would look as if it had everything.
CREATE OR REPLACE FUNCTION unnumbered_events()
RETURNS TABLE (events bigint, oldest timestamptz)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  WITH last AS (SELECT n.seen_below, n.seen_open FROM wh_event_sequence n ORDER BY n.number DESC LIMIT 1)
  SELECT count(*), min(e.created_at)
  FROM (
    SELECT l.created_at FROM unnest((SELECT seen_open FROM last)) AS o(arrival) JOIN wh_event_store l ON l.arrival = o.arrival
    UNION ALL
    SELECT f.created_at FROM wh_event_store f WHERE f.arrival >= COALESCE((SELECT seen_below FROM last), 0)
  ) e;
$$;
