-- How many rows of a perspective's live tables this transaction has written, or tried to: a rebuild must write none.
CREATE OR REPLACE FUNCTION live_writes(p_perspective_name text)
RETURNS bigint
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT COALESCE(sum(pg_stat_get_xact_tuples_inserted(t.id) + pg_stat_get_xact_tuples_updated(t.id)
    + pg_stat_get_xact_tuples_deleted(t.id)), 0)::bigint
  FROM wh_perspectives p, unnest(p.tables) AS name, CAST(to_regclass(name) AS oid) AS t(id)
  WHERE p.perspective_name = p_perspective_name;
$$;
