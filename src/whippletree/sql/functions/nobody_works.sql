-- That no live instance works a queue, and what to do about it, in words; NULL when one does.
CREATE OR REPLACE FUNCTION nobody_works(p_queue text, p_as_of timestamptz)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT format('no live instance works %s; start one%s with `whippletree run`', p_queue, CASE
    WHEN count(*) = 0 THEN '' WHEN p_queue = 'outbox' THEN ' that has a transport' ELSE ' that has it' END)
  FROM wh_service_instances i
  WHERE NOT is_gone(i, p_as_of)
  HAVING bool_or(works_queue(i.queues, p_queue)) IS NOT TRUE;
$$;
