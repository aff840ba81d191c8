-- Tells waiting instances at commit that there is work. NOTIFY makes committers queue up, so a busy system sends none:
-- only an instance with nothing to do is waiting. The payload is constant; a notification is a hint to poll. Of a queue that
-- is named only those are told who work it.
CREATE OR REPLACE FUNCTION wake_waiting_instances(p_queue text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF EXISTS (SELECT FROM wh_service_instances i WHERE i.waiting AND (p_queue IS NULL OR works_queue(i.queues, p_queue))) THEN
    PERFORM pg_notify(wake_channel(), '');
  END IF;
END;
$$;
