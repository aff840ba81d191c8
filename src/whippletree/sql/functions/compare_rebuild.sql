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
      %s
    ), told AS (
      SELECT p.*, CASE WHEN p.live IS NULL THEN 'added' WHEN p.built IS NULL THEN 'gone' WHEN p.live = p.built THEN 'equal'
        ELSE 'changed' END AS kind
      FROM pair p
    ), counted AS (
      SELECT t.kind, count(*) FROM told t GROUP BY t.kind
    ), sample AS (
      SELECT n.kind, jsonb_agg(jsonb_build_object('key', n.key, 'live', n.live, 'built', n.built) ORDER BY n.key) AS samples
      FROM (SELECT t.*, row_number() OVER (PARTITION BY t.kind ORDER BY t.key) FROM told t WHERE t.kind <> 'equal') n
      WHERE n.row_number <= $1
      GROUP BY n.kind
    )
    SELECT k.kind, COALESCE(c.count, 0), COALESCE(s.samples, '[]')
    FROM unnest(ARRAY['equal', 'changed', 'added', 'gone']) WITH ORDINALITY AS k(kind, place)
    LEFT JOIN counted c ON c.kind = k.kind LEFT JOIN sample s ON s.kind = k.kind
    ORDER BY k.place $statement$, pairs_to_compare(v_known)) USING p_samples;
END;
$$;
