-- Begins a rebuild of a perspective that follows the feed, and divides it into parts, which any number of instances work
-- at once: what has a number now is sorted by key, each part a range of numbers, and then folded, each part some of the
-- keys (continue_rebuild). What comes after it is followed by one. So is all of a feed that is too short to be divided.
CREATE OR REPLACE FUNCTION divide_rebuild(p_known wh_perspectives, p_generation integer, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_queue text := 'perspective/' || p_known.perspective_name || '@' || p_generation;
  v_last bigint := last_number();
  v_parts bigint := least(16, v_last / 500);
BEGIN
  IF v_parts < 2 THEN
    PERFORM register_subscriber(v_queue, 0, true, p_known.patterns, p_as_of);
    RETURN;
  END IF;
  EXECUTE format('CREATE TABLE %I (part integer, number bigint, key text NOT NULL, PRIMARY KEY (part, number))',
    keys_table(p_known.perspective_name, p_generation));
  INSERT INTO wh_subscribers (subscriber_name, checkpoint, through, coordinated, created_at, updated_at)
  SELECT v_queue || '/sort-' || part, v_last * (part - 1) / v_parts, v_last * part / v_parts, true, p_as_of, p_as_of
  FROM generate_series(1, v_parts) AS part;
END;
$$;
