-- What there is to follow of the rebuilds of the perspectives named that follow the feed: the unfinished parts of each, or
-- the feed from where its parts have ended, with stage, part and through NULL. Free is what nobody holds.
CREATE OR REPLACE FUNCTION feed_rebuilds(p_perspective_names text[])
RETURNS TABLE (perspective_name text, generation integer, stage text, part integer, through bigint, free boolean)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
  PERFORM continue_rebuild(p.perspective_name, p.building_generation) FROM wh_perspectives p
  WHERE p.perspective_name = ANY (p_perspective_names) AND p.key_type = 'text'
    AND (SELECT bool_and(s.checkpoint = s.through) FROM rebuild_parts(p.perspective_name, p.building_generation) s);
  RETURN QUERY
  SELECT p.perspective_name, p.building_generation, substring(s.subscriber_name from '/(sort|fold)-'),
    substring(s.subscriber_name from '[0-9]+$')::integer, s.through,
    NOT EXISTS (SELECT FROM subscriber_locks(ARRAY[s.subscriber_name], 0) l WHERE l.holds)
  FROM wh_perspectives p
  LEFT JOIN LATERAL rebuild_parts(p.perspective_name, p.building_generation) s ON true
  WHERE p.perspective_name = ANY (p_perspective_names) AND p.key_type = 'text' AND p.building_generation IS NOT NULL
    AND (s.subscriber_name IS NULL OR s.checkpoint < s.through);
END;
$$;
