-- How PostgreSQL takes a declared column from the row. Times are read by time_of, which PostgreSQL may keep as the value.
CREATE OR REPLACE FUNCTION column_expression(p_path text[], p_type text)
RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN p_type = 'text' THEN format('row #>> %L', p_path)
    WHEN p_type = 'timestamptz' THEN format('%I.time_of(row #>> %L)', current_schema(), p_path)
    WHEN p_type = 'date' THEN format('%I.date_of(row #>> %L)', current_schema(), p_path)
    ELSE format('(row #>> %L)::%s', p_path, p_type)
  END;
$$;
