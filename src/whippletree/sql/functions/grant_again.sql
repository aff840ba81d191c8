-- Grants on a relation of the search path what an older one of its name had granted.
CREATE OR REPLACE FUNCTION grant_again(p_acl aclitem[], p_relation text)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_grant record;
BEGIN
  FOR v_grant IN
    SELECT a.privilege_type, a.is_grantable,
      CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
    FROM aclexplode(p_acl) a
  LOOP
    EXECUTE format('GRANT %s ON %s TO %s%s', v_grant.privilege_type, p_relation, v_grant.grantee,
      CASE WHEN v_grant.is_grantable AND v_grant.grantee <> 'PUBLIC' THEN ' WITH GRANT OPTION' ELSE '' END);
  END LOOP;
END;
$$;
