-- Lets the view of a perspective show a generation. Columns are only ever added at its end; when one has another type, the
-- view is made anew, with the rights that were granted on it.
CREATE OR REPLACE FUNCTION show_rows(p_known wh_perspectives, p_generation integer)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_view text := rows_table(p_known.perspective_name, NULL);
  v_table text := rows_table(p_known.perspective_name, p_generation);
  v_shown regclass := to_regclass(quote_ident(v_view));
  v_acl aclitem[] := (SELECT relacl FROM pg_class WHERE oid = v_shown);
  v_columns text;
  v_changed boolean;
  v_detail text;
BEGIN
  IF p_known.key_type = 'none' THEN
    RETURN;
  END IF;
  SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY s.attnum, a.attnum), bool_or(s.atttypid <> a.atttypid)
  INTO v_columns, v_changed
  FROM pg_attribute a
  LEFT JOIN pg_attribute s ON s.attrelid = v_shown AND s.attname = a.attname
  WHERE a.attrelid = to_regclass(quote_ident(v_table)) AND a.attnum > 0 AND NOT a.attisdropped;
  IF v_changed THEN
    EXECUTE format('DROP VIEW %I', v_view);
  END IF;
  EXECUTE format('CREATE OR REPLACE VIEW %I AS SELECT %s FROM %I', v_view, v_columns, v_table);
  IF v_changed THEN
    PERFORM grant_again(v_acl, quote_ident(v_view));
  END IF;
EXCEPTION WHEN dependent_objects_still_exist THEN
  GET STACKED DIAGNOSTICS v_detail = PG_EXCEPTION_DETAIL;
  RAISE EXCEPTION 'a column of % has another type in generation %, and its view is used: %', p_known.perspective_name,
    p_generation, v_detail USING ERRCODE = 'WH002', HINT = 'Drop what uses it, and make it again after the swap.';
END;
$$;
