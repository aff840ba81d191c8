-- Writes rows of a perspective; a NULL row removes it. In key order, so that two writers cannot wait for each other in a
-- circle. False when the generation is no longer worked on, because the rows were swapped: then nothing is written.
CREATE OR REPLACE FUNCTION write_rows(
  p_perspective_name text, p_generation integer, p_keys text[], p_rows jsonb[], p_versions bigint[],
  p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  v_table text := rows_table(p_perspective_name, p_generation);
  v_type text;
BEGIN
  -- A swap takes it alone, and so waits for every fold that is under way.
  PERFORM pg_advisory_xact_lock_shared(lock_key('perspective:' || p_perspective_name));
  SELECT p.key_type INTO v_type FROM wh_perspectives p
  WHERE p.perspective_name = p_perspective_name AND p_generation IN (p.live_generation, p.building_generation);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  EXECUTE format('INSERT INTO %I AS t (key, row, version, updated_at)
    SELECT k.key, k.row, k.version, $4 FROM unnest($1::%s[], $2, $3) AS k(key, row, version)
    WHERE k.row IS NOT NULL ORDER BY k.key
    ON CONFLICT (key) DO UPDATE SET row = EXCLUDED.row, version = EXCLUDED.version, updated_at = EXCLUDED.updated_at',
    v_table, v_type) USING p_keys, p_rows, p_versions, p_as_of;
  IF array_position(p_rows, NULL) IS NOT NULL THEN
    EXECUTE format('DELETE FROM %I t USING (SELECT k.key FROM unnest($1::%s[], $2) AS k(key, row) WHERE k.row IS NULL) k
      WHERE t.key = k.key', v_table, v_type) USING p_keys, p_rows;
  END IF;
  RETURN true;
END;
$$;
