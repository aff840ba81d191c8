-- Removes a generation of a perspective that is not the live one: its rows, its work and its checkpoints.
CREATE OR REPLACE FUNCTION drop_generation(p_perspective_name text, p_generation integer)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- In key order: a report that is under way ends first.
  PERFORM FROM (SELECT FROM wh_active_streams s WHERE s.queue = 'perspective/' || p_perspective_name || '@' || p_generation
    ORDER BY s.stream_id FOR UPDATE) s;
  DELETE FROM wh_active_streams s WHERE s.queue = 'perspective/' || p_perspective_name || '@' || p_generation;
  DELETE FROM wh_checkpoints c WHERE c.perspective_name = p_perspective_name || '@' || p_generation;
  EXECUTE format('DROP TABLE %I', rows_table(p_perspective_name, p_generation));
  UPDATE wh_perspectives
  SET building_generation = NULLIF(building_generation, p_generation),
    previous_generation = NULLIF(previous_generation, p_generation)
  WHERE perspective_name = p_perspective_name;
END;
$$;
