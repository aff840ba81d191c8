-- The received messages that were not stored because their id was accepted before, as a JSON array.
CREATE OR REPLACE FUNCTION duplicates_json(p_work wh_work[])
RETURNS jsonb
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT COALESCE(jsonb_agg(jsonb_build_object('message_id', w.message_id, 'outcome', w.kind, 'place', w.place)
    ORDER BY w.place), '[]')
  FROM unnest(p_work) w
  WHERE w.kind IN ('duplicate', 'conflict');
$$;
