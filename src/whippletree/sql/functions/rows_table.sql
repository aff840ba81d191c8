-- The name of the table that holds a perspective's rows of a generation; of the view that shows the live one when the
-- generation is NULL. Long names are cut and told apart by a hash, because PostgreSQL would cut them silently.
CREATE OR REPLACE FUNCTION rows_table(p_perspective_name text, p_generation integer)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'wh_rows_' || CASE WHEN length(p_perspective_name) <= 40 THEN p_perspective_name
  ELSE left(p_perspective_name, 31) || '_' || left(md5(p_perspective_name), 8) END
  || COALESCE('_g' || p_generation, '');
