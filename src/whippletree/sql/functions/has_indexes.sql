-- Whether a table of rows has the declared indexes.
CREATE OR REPLACE FUNCTION has_indexes(p_table text, p_indexes jsonb)
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT NOT EXISTS (SELECT FROM jsonb_array_elements(p_indexes) i
    WHERE to_regclass(quote_ident(p_table || '_' || left(md5(i::text), 8))) IS NULL);
$$;
