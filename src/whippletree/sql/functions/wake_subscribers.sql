-- Tells subscribers at commit that there are events, when one of them waits for it. See wake_waiting_instances.
CREATE OR REPLACE FUNCTION wake_subscribers()
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
BEGIN
  IF EXISTS (SELECT FROM wh_subscribers WHERE waiting) THEN
    PERFORM pg_notify(feed_channel(), '');
  END IF;
END;
$$;
