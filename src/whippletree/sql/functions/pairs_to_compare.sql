-- The statement that pairs the live rows of a perspective with those of its rebuild: key, live, built. The rows of tables
-- that it writes by its own SQL are paired by their primary key, and without one as a whole. Identity columns are left out:
-- they number rows in the order in which streams happened to be worked.
CREATE OR REPLACE FUNCTION pairs_to_compare(p_known wh_perspectives)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE WHEN p_known.key_type <> 'none' THEN
    format('SELECT COALESCE(l.key, b.key)::text AS key, l.row AS live, b.row AS built FROM %I l FULL JOIN %I b ON b.key = l.key',
      rows_table(p_known.perspective_name, p_known.live_generation),
      rows_table(p_known.perspective_name, p_known.building_generation))
  ELSE (
    SELECT string_agg(format('SELECT %1$L || COALESCE(l.key, b.key)::text AS key, l.row AS live, b.row AS built
        FROM (SELECT %3$s AS key, t.row FROM (SELECT to_jsonb(t) - %5$L::text[] AS row FROM %2$s t) t) l
        FULL JOIN (SELECT %3$s AS key, t.row FROM (SELECT to_jsonb(t) - %5$L::text[] AS row FROM %4$s t) t) b ON b.key = l.key',
      r.relname || ' ', t.name,
      COALESCE('jsonb_build_object(' || k.parts || ')', 'jsonb_build_array(t.row, row_number() OVER (PARTITION BY t.row))'),
      format('%I.%I', generation_schema(p_known.perspective_name, p_known.building_generation), r.relname),
      ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = r.oid AND a.attidentity <> '')), ' UNION ALL ')
    FROM unnest(p_known.tables) AS t(name)
    JOIN pg_class r ON r.oid = to_regclass(t.name)
    LEFT JOIN LATERAL (
      SELECT string_agg(format('%L, t.row -> %L', a.attname, a.attname), ', ') AS parts
      FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
      WHERE i.indrelid = r.oid AND i.indisprimary
      HAVING bool_and(a.attidentity = '')) AS k ON true)
  END;
$$;
