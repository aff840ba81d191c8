-- Notes the keys of events for a rebuild that is divided into parts. A key belongs to one part, by a hash of its own. False
-- when the generation is no longer built: then nothing is written.
CREATE OR REPLACE FUNCTION sort_events(
  p_perspective_name text, p_generation integer, p_numbers bigint[], p_keys text[])
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_parts bigint;
BEGIN
  -- As in write_rows: whoever ends the rebuild takes it alone.
  PERFORM pg_advisory_xact_lock_shared(lock_key('perspective:' || p_perspective_name));
  IF NOT EXISTS (SELECT FROM wh_perspectives p
    WHERE p.perspective_name = p_perspective_name AND p.building_generation = p_generation) THEN
    RETURN false;
  END IF;
  v_parts := (SELECT count(*) FROM rebuild_parts(p_perspective_name, p_generation));
  EXECUTE format('INSERT INTO %I (part, number, key)
    SELECT 1 + (''x'' || left(md5(k.key), 8))::bit(32)::bigint %% $3, k.number, k.key FROM unnest($1, $2) AS k(number, key)',
    keys_table(p_perspective_name, p_generation)) USING p_numbers, p_keys, v_parts;
  RETURN true;
END;
$$;
