-- The columns of a perspective's live rows that are defined otherwise than given, or not at all; NULL when all are as given.
CREATE OR REPLACE FUNCTION columns_to_rebuild(p_perspective_name text, p_columns jsonb)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT string_agg(c.key, ', ' ORDER BY c.key)
  FROM jsonb_each(p_columns) c, wh_perspectives p
  JOIN wh_perspective_generations g ON g.perspective_name = p.perspective_name AND g.generation = p.live_generation
  WHERE p.perspective_name = p_perspective_name AND g.columns -> c.key IS DISTINCT FROM c.value;
$$;
