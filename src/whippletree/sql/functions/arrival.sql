-- What an event that this transaction appends is to bear as its arrival. In plpgsql: see pick_streams.
CREATE OR REPLACE FUNCTION arrival()
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (SELECT pg_current_xact_id()::text::bigint + s.arrival_base FROM wh_settings s);
END;
$$;
