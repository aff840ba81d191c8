-- The indexes that a table of rows has besides its key, as they were declared.
CREATE OR REPLACE FUNCTION declared_indexes(p_table text)
RETURNS jsonb
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT COALESCE(jsonb_agg(i.names ORDER BY i.names), '[]') FROM (
    SELECT (SELECT jsonb_agg(a.attname ORDER BY k.n)
      FROM unnest(x.indkey::smallint[]) WITH ORDINALITY AS k(attnum, n)
      JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.attnum) AS names
    FROM pg_index x WHERE x.indrelid = to_regclass(quote_ident(p_table)) AND NOT x.indisprimary
  ) i
  -- One that somebody made by hand is not ours to copy.
  WHERE has_indexes(p_table, jsonb_build_array(i.names));
$$;
