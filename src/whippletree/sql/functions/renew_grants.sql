-- Ends an installation, in its transaction: none of our functions is open to everybody, and every role that was granted a
-- kind before gets what that kind needs now. Who was granted what is read from the catalogue; nothing else remembers it.
CREATE OR REPLACE FUNCTION renew_grants(p_functions text[])
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_schema regnamespace := current_schema()::regnamespace;
  v_function regprocedure;
  v_role name;
  v_kind text;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_key('grants'));
  FOR v_function IN
    SELECT p.oid FROM pg_proc p
    WHERE p.pronamespace = v_schema AND p.proname = ANY (p_functions) AND has_function_privilege('public', p.oid, 'EXECUTE')
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function);
  END LOOP;
  -- Whoever can create in our schema could put a function of his own in front of ours.
  IF has_schema_privilege('public', v_schema, 'CREATE') THEN
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
  END IF;

  FOR v_role, v_kind IN
    SELECT DISTINCT r.rolname, g.kind
    FROM (
      SELECT a.grantee, p.proowner AS owner, CASE p.proname WHEN 'process_work' THEN 'worker' ELSE 'producer' END AS kind
      FROM pg_proc p, aclexplode(p.proacl) a
      WHERE p.pronamespace = v_schema AND p.proname IN ('store_message', 'process_work')
      UNION ALL
      SELECT a.grantee, c.relowner, 'viewer' FROM pg_class c, aclexplode(c.relacl) a
      WHERE c.oid = 'wh_outbox'::regclass AND a.privilege_type = 'SELECT'
    ) g
    JOIN pg_roles r ON r.oid = g.grantee AND r.oid <> g.owner
  LOOP
    EXECUTE format('SELECT %I(%L)', 'grant_' || v_kind, v_role);
  END LOOP;
END;
$$;
