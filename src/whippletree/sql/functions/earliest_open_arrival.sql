-- The arrival below which every event is visible by now or never will be: what comes meanwhile is found from it on.
CREATE OR REPLACE FUNCTION earliest_open_arrival()
RETURNS bigint
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint + s.arrival_base FROM wh_settings s;
$$;
