-- Resolves the types that no event has had before. The shared lock keeps a registration from coming between the look-up
-- and the append: it waits until every append that did not know of it has ended. Two transactions that bring the same new
-- type wait for each other, so a service resolves its types when it starts.
CREATE OR REPLACE FUNCTION resolve_event_types(p_event_types text[])
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(lock_key('event types'));
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM require_recent_snapshot();
  END IF;
  INSERT INTO wh_event_types (event_type, queues)
  SELECT t.event_type, queues_of_type(t.event_type)
  FROM (SELECT DISTINCT unnest(p_event_types) AS event_type) t
  WHERE NOT EXISTS (SELECT FROM wh_event_types k WHERE k.event_type = t.event_type)
  ORDER BY t.event_type
  ON CONFLICT DO NOTHING;
END;
$$;
