-- Makes the table of one generation of a perspective's rows with its declared columns and indexes, or adds what is missing.
CREATE OR REPLACE FUNCTION make_rows_table(
  p_perspective_name text, p_generation integer, p_key_type text, p_columns jsonb, p_indexes jsonb)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET client_min_messages = warning
AS $$
DECLARE
  v_table text := rows_table(p_perspective_name, p_generation);
  v_column record;
  v_index jsonb;
BEGIN
  EXECUTE format('CREATE TABLE IF NOT EXISTS %I (key %s%s PRIMARY KEY, row jsonb NOT NULL, version bigint NOT NULL,
      updated_at timestamptz NOT NULL) WITH (fillfactor = 80)', v_table, p_key_type,
    CASE p_key_type WHEN 'text' THEN ' COLLATE "C"' END);
  FOR v_column IN
    SELECT c.key AS name, c.value ->> 'type' AS type,
      ARRAY(SELECT jsonb_array_elements_text(c.value -> 'path')) AS path
    FROM jsonb_each(p_columns) c ORDER BY c.key
  LOOP
    EXECUTE format('ALTER TABLE %I ADD COLUMN IF NOT EXISTS %I %s GENERATED ALWAYS AS (%s) STORED', v_table,
      v_column.name, v_column.type, column_expression(v_column.path, v_column.type));
  END LOOP;
  FOR v_index IN SELECT jsonb_array_elements(p_indexes) LOOP
    EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %I (%s)', v_table || '_' || left(md5(v_index::text), 8), v_table,
      (SELECT string_agg(quote_ident(i), ', ' ORDER BY n) FROM jsonb_array_elements_text(v_index) WITH ORDINALITY AS e(i, n)));
  END LOOP;
END;
$$;
