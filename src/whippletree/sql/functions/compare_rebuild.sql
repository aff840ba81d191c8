-- How the rows of a rebuild differ from the live ones: how many are equal, changed, added or gone, with a few of each.
-- Events that are being folded just now show as changes.
CREATE OR REPLACE FUNCTION compare_rebuild(p_perspective_name text, p_samples integer DEFAULT 5)
RETURNS TABLE (kind text, count bigint, samples jsonb)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_known wh_perspectives;
BEGIN
  SELECT * INTO v_known FROM wh_perspectives WHERE perspective_name = p_perspective_name;
  IF v_known.building_generation IS NULL THEN
    RAISE EXCEPTION '% is not being rebuilt', p_perspective_name
      USING ERRCODE = 'WH002', HINT = format('Begin with `whippletree perspectives rebuild %s`.', p_perspective_name);
  END IF;
  RETURN QUERY EXECUTE format($statement$
    WITH pair AS (
      SELECT COALESCE(l.key, b.key) AS key, l.row AS live, b.row AS built,
        CASE WHEN l.key IS NULL THEN 'added' WHEN b.key IS NULL THEN 'gone' WHEN l.row = b.row THEN 'equal'
          ELSE 'changed' END AS kind
      FROM %I l FULL JOIN %I b ON b.key = l.key
    ), counted AS (
      SELECT p.kind, count(*) FROM pair p GROUP BY p.kind
    ), sample AS (
      SELECT n.kind, jsonb_agg(jsonb_build_object('key', n.key, 'live', n.live, 'built', n.built) ORDER BY n.key) AS samples
      FROM (SELECT p.*, row_number() OVER (PARTITION BY p.kind ORDER BY p.key) FROM pair p WHERE p.kind <> 'equal') n
      WHERE n.row_number <= $1
      GROUP BY n.kind
    )
    SELECT k.kind, COALESCE(c.count, 0), COALESCE(s.samples, '[]')
    FROM unnest(ARRAY['equal', 'changed', 'added', 'gone']) WITH ORDINALITY AS k(kind, place)
    LEFT JOIN counted c ON c.kind = k.kind LEFT JOIN sample s ON s.kind = k.kind
    ORDER BY k.place $statement$,
    rows_table(p_perspective_name, v_known.live_generation), rows_table(p_perspective_name, v_known.building_generation))
  USING p_samples;
END;
$$;
