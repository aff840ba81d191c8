-- What an event that this transaction appends is to bear as its arrival.
CREATE OR REPLACE FUNCTION arrival()
RETURNS bigint
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT pg_current_xact_id()::text::bigint + s.arrival_base FROM wh_settings s;
$$;
