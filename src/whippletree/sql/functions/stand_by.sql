-- Lets this session stand by for subscribers, which the others see.
CREATE OR REPLACE FUNCTION stand_by(p_names text[])
RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  SELECT pg_advisory_lock_shared(k[1], k[2]) FROM unnest(p_names) AS name, subscriber_lock('standby:' || name) AS k;
$$;
