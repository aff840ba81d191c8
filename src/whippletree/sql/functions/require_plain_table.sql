-- Refuses to build a table again beside the live one when something would stay with the old one after the swap.
CREATE OR REPLACE FUNCTION require_plain_table(p_table text)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_table regclass := to_regclass(p_table);
  v_hindrance text;
BEGIN
  IF v_table IS NULL THEN
    RAISE EXCEPTION 'there is no table %', p_table USING ERRCODE = 'WH006', HINT = 'Make it, or leave it out of tables=[…].';
  END IF;
  SELECT h INTO v_hindrance FROM (
    SELECT 'it is no ordinary table' FROM pg_class c
    WHERE c.oid = v_table AND (c.relkind <> 'r' OR c.relispartition OR c.relhassubclass OR c.relrowsecurity)
    UNION ALL
    SELECT format('foreign key %s of %s', c.conname, c.conrelid::regclass) FROM pg_constraint c
    WHERE c.contype = 'f' AND v_table IN (c.conrelid, c.confrelid)
    UNION ALL
    SELECT 'trigger ' || t.tgname FROM pg_trigger t WHERE t.tgrelid = v_table AND NOT t.tgisinternal
    UNION ALL
    SELECT 'view ' || r.ev_class::regclass FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = v_table AND r.ev_class <> v_table
    UNION ALL
    SELECT format('sequence %s; use GENERATED … AS IDENTITY', d.objid::regclass) FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = v_table AND d.deptype = 'a'
      AND (SELECT c.relkind FROM pg_class c WHERE c.oid = d.objid) = 'S'
  ) AS found(h) LIMIT 1;
  IF v_hindrance IS NOT NULL THEN
    RAISE EXCEPTION 'table % cannot be built again beside the live one, because of what stays with the old one: %', p_table,
      v_hindrance USING ERRCODE = 'WH002', HINT = 'Rows of a perspective come from events: drop it, or make it again after the swap.';
  END IF;
END;
$$;
