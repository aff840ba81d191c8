-- The name of the table in which a rebuild of a perspective that chooses its keys has sorted events by key.
CREATE OR REPLACE FUNCTION keys_table(p_perspective_name text, p_generation integer)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
  SELECT 'wh_keys_' || substr(rows_table(p_perspective_name, p_generation), 9);
$$;
