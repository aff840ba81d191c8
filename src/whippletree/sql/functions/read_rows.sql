-- The rows of a generation of a perspective with the given keys, each with its place among them. None of a generation that
-- nobody works on: write_rows refuses it, and its table may be gone.
CREATE OR REPLACE FUNCTION read_rows(p_perspective_name text, p_generation integer, p_keys text[])
RETURNS TABLE (place integer, "row" jsonb)
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  v_type text := (SELECT p.key_type FROM wh_perspectives p
    WHERE p.perspective_name = p_perspective_name AND p_generation IN (p.live_generation, p.building_generation));
BEGIN
  IF v_type IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY EXECUTE format(
    'SELECT k.place::integer, t.row FROM unnest($1::%s[]) WITH ORDINALITY AS k(key, place) JOIN %I t ON t.key = k.key',
    v_type, rows_table(p_perspective_name, p_generation)) USING p_keys;
END;
$$;
