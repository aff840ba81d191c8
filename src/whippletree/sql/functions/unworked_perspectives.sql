-- The perspectives that have work which no instance does, parked work apart: nobody who runs now knows them.
CREATE OR REPLACE FUNCTION unworked_perspectives()
RETURNS SETOF text
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT DISTINCT m.perspective_name FROM wh_perspective_mappings m
  WHERE EXISTS (SELECT FROM wh_active_streams s WHERE s.queue = 'perspective/' || m.perspective_name AND NOT is_parked(s.ready_at))
    AND NOT EXISTS (SELECT FROM wh_service_instances i
      WHERE works_queue(i.queues, 'perspective/' || m.perspective_name))
  ORDER BY 1;
$$;
