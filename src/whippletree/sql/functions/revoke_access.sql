-- Takes back from a role whatever it was granted in this schema.
CREATE OR REPLACE FUNCTION revoke_access(p_role name)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_kind text;
BEGIN
  -- Checks the role.
  PERFORM grant_functions(p_role, '{}');
  FOREACH v_kind IN ARRAY ARRAY['FUNCTIONS', 'TABLES', 'SEQUENCES'] LOOP
    EXECUTE format('REVOKE ALL ON ALL %s IN SCHEMA %I FROM %I', v_kind, current_schema(), p_role);
  END LOOP;
  EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %I', current_schema(), p_role);
END;
$$;
