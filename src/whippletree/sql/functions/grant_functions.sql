-- Lets a role call the named functions of this schema. A name that is no function is an error, lest a grant be forgotten.
CREATE OR REPLACE FUNCTION grant_functions(p_role name, p_functions text[])
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_function regprocedure;
  v_name text;
BEGIN
  -- Also keeps PUBLIC out, which GRANT would take for everybody.
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = p_role) THEN
    RAISE EXCEPTION 'there is no role %', quote_ident(p_role)
      USING ERRCODE = 'WH002', HINT = format('Create it first: CREATE ROLE %I LOGIN.', p_role);
  END IF;
  -- PostgreSQL does not let two change the rights to one thing at once.
  PERFORM pg_advisory_xact_lock(lock_key('grants'));
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), p_role);
  FOREACH v_name IN ARRAY p_functions LOOP
    FOR v_function IN
      SELECT p.oid FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace AND p.proname = v_name
    LOOP
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', v_function, p_role);
    END LOOP;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'there is no function %', v_name USING ERRCODE = 'undefined_function';
    END IF;
  END LOOP;
END;
$$;
