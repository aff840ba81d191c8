-- Tells waiting instances at commit that there is work. NOTIFY makes committers queue up, so a busy system sends none:
-- only an instance with nothing to do is waiting. The payload is constant; a notification is a hint to poll. Of a queue that
-- is named only those are told who work it.
CREATE OR REPLACE FUNCTION wake_waiting_instances(p_queue text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- Mostly nobody waits, and that is to cost little.
  IF EXISTS (SELECT FROM wh_service_instances WHERE waiting) THEN
    PERFORM pg_notify(wake_channel(), '') WHERE p_queue IS NULL
      OR EXISTS (SELECT FROM wh_service_instances i WHERE i.waiting AND works_queue(i.queues, p_queue));
  END IF;
END;
$$;
