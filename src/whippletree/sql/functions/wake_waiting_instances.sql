-- Tells waiting instances at commit that there is work. NOTIFY makes committers queue up, so a busy system sends none:
-- only an instance with nothing to do is waiting. The payload is constant; a notification is a hint to poll.
CREATE OR REPLACE FUNCTION wake_waiting_instances()
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF EXISTS (SELECT FROM wh_service_instances WHERE waiting) THEN
    PERFORM pg_notify(wake_channel(), '');
  END IF;
END;
$$;
