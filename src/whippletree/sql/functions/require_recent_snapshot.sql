-- Raises 40001, begin again, when the caller's transaction sees a time before registrations were last changed: it would
-- append what nobody finds. Under READ COMMITTED there is no such time, and this need not be called. PostgreSQL
-- refuses to lock a row that has changed since; a lock that it grants is given back at once, for nobody is to wait for it.
CREATE OR REPLACE FUNCTION require_recent_snapshot()
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM FROM wh_settings FOR SHARE;
  RAISE EXCEPTION USING ERRCODE = 'WH000';
EXCEPTION
  WHEN SQLSTATE 'WH000' THEN
    RETURN;
END;
$$;
