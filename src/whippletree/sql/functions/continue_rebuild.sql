-- Takes a rebuild whose parts are all finished to its next stage: from sorting to folding, and then to following what came
-- meanwhile. Whoever looks first does it.
CREATE OR REPLACE FUNCTION continue_rebuild(
  p_perspective_name text, p_generation integer, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '500ms'
AS $$
DECLARE
  v_queue text := 'perspective/' || p_perspective_name || '@' || p_generation;
  v_last bigint;
  v_parts bigint;
  v_finished boolean;
  v_folded boolean;
BEGIN
  IF NOT pg_try_advisory_xact_lock(lock_key('rebuild:' || p_perspective_name)) THEN
    RETURN;
  END IF;
  SELECT max(s.through), count(*), bool_and(s.checkpoint = s.through), bool_and(s.subscriber_name LIKE '%/fold-%')
  INTO v_last, v_parts, v_finished, v_folded
  FROM rebuild_parts(p_perspective_name, p_generation) s;
  IF v_finished IS NOT TRUE THEN
    RETURN;
  END IF;
  DELETE FROM wh_subscribers s WHERE s.through IS NOT NULL AND starts_with(s.subscriber_name, v_queue || '/');
  IF v_folded THEN
    INSERT INTO wh_subscribers (subscriber_name, checkpoint, coordinated, created_at, updated_at)
    VALUES (v_queue, v_last, true, p_as_of, p_as_of);
    EXECUTE format('DROP TABLE %I', keys_table(p_perspective_name, p_generation));
  ELSE
    INSERT INTO wh_subscribers (subscriber_name, checkpoint, through, coordinated, created_at, updated_at)
    SELECT v_queue || '/fold-' || part, 0, v_last, true, p_as_of, p_as_of FROM generate_series(1, v_parts) AS part;
  END IF;
  PERFORM pg_notify(feed_channel(), '');
END;
$$;
