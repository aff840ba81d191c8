-- Lets the view of a perspective show its live generation. Columns are only ever added at its end.
CREATE OR REPLACE FUNCTION show_live_rows(p_perspective_name text)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_view text := rows_table(p_perspective_name, NULL);
  v_table text;
  v_columns text[];
BEGIN
  SELECT rows_table(perspective_name, live_generation) INTO v_table
  FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  SELECT array_agg(a.attname ORDER BY s.attnum, a.attnum) INTO v_columns
  FROM pg_attribute a
  LEFT JOIN pg_attribute s ON s.attrelid = to_regclass(quote_ident(v_view)) AND s.attname = a.attname
  WHERE a.attrelid = to_regclass(quote_ident(v_table)) AND a.attnum > 0 AND NOT a.attisdropped;
  EXECUTE format('CREATE OR REPLACE VIEW %I AS SELECT %s FROM %I', v_view,
    (SELECT string_agg(quote_ident(c), ', ' ORDER BY n) FROM unnest(v_columns) WITH ORDINALITY AS u(c, n)), v_table);
END;
$$;
