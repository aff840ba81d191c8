-- How far the rebuilds are that are divided into parts. An event is sorted by key first, and folded then; while they are
-- folded, all parts go through all numbers, each past those of the others. One whose parts are all finished is about to go on.
CREATE OR REPLACE FUNCTION rebuild_progress()
RETURNS TABLE (queue text, streams bigint, parked bigint, done bigint, sorted bigint)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT p.queue, greatest(count(*) FILTER (WHERE p.checkpoint < p.through), 1), count(*) FILTER (WHERE p.state = 'parked'),
    COALESCE(avg(p.checkpoint) FILTER (WHERE p.stage = 'fold'), 0)::bigint,
    (max(p.through) - COALESCE(sum(p.through - p.checkpoint) FILTER (WHERE p.stage = 'sort'), 0))::bigint
  FROM (
    SELECT s.*, regexp_replace(s.subscriber_name, '/[^/]+$', '') AS queue, substring(s.subscriber_name from '/(sort|fold)-') AS stage
    FROM wh_subscribers s WHERE s.through IS NOT NULL
  ) p
  GROUP BY p.queue;
$$;
