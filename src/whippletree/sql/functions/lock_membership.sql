-- Takes the lock under which instances are removed and partitions change hands, to the end of the transaction. Several who
-- learn of a change at once take turns; whoever holds it for long, such as an operator's transaction, keeps nobody from work.
CREATE OR REPLACE FUNCTION lock_membership()
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT SET lock_timeout = '50ms'
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(lock_key('membership'));
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END;
$$;
