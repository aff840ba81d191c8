-- Every subscriber as it is now.
CREATE OR REPLACE FUNCTION subscriber_overview()
RETURNS TABLE (subscriber_name text, state text, checkpoint bigint, behind bigint, paused boolean, attempts integer,
  failed_number bigint, error text, holder text)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT s.subscriber_name, s.state, s.checkpoint, s.behind, s.paused, s.attempts, s.failed_number, s.error,
    i.host_name || ':' || i.process_id
  FROM wh_subscriptions s LEFT JOIN wh_service_instances i ON i.instance_id = s.holder
  ORDER BY s.subscriber_name;
$$;
