-- Takes free subscribers for this session, and says of each: held, free, another's, or surplus, when it is held and a
-- standby has at least two fewer. A session takes what is free up to its share, and leaves the rest to the others; the
-- names of p_anyway, which were free the last time too, it takes all the same. A silent holder's session is ended.
CREATE OR REPLACE FUNCTION take_subscribers(p_names text[], p_anyway text[], p_silent_seconds double precision)
RETURNS TABLE (subscriber_name text, standing text)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_one record;
  v_key integer[];
  v_mine bigint := NULL;
BEGIN
  FOR v_one IN
    WITH lock AS MATERIALIZED (
      SELECT * FROM subscriber_locks(p_names, p_silent_seconds)
    ), session AS MATERIALIZED (
      SELECT l.process_id, count(*) FILTER (WHERE l.holds) AS held, bool_or(l.silent) AS silent
      FROM lock l GROUP BY l.process_id
    )
    SELECT n.name, h.process_id AS holder, h.silent,
      COALESCE((SELECT s.held FROM session s WHERE s.process_id = pg_backend_pid()), 0) AS mine,
      (SELECT ceil(cardinality(p_names)::numeric / greatest(count(*), 1)) FROM session s WHERE NOT s.silent) AS share,
      (SELECT min(s.held) FROM lock l JOIN session s USING (process_id)
       WHERE l.subscriber_name = n.name AND NOT l.holds AND NOT s.silent AND s.process_id <> pg_backend_pid()) AS least
    FROM unnest(p_names) AS n(name)
    LEFT JOIN lock h ON h.subscriber_name = n.name AND h.holds
  LOOP
    v_mine := COALESCE(v_mine, v_one.mine);
    v_key := subscriber_lock(v_one.name);
    subscriber_name := v_one.name;
    IF v_one.silent AND v_one.holder <> pg_backend_pid() THEN
      PERFORM pg_terminate_backend(v_one.holder, 1000);
      v_one.holder := NULL;
    END IF;
    IF v_one.holder = pg_backend_pid() THEN
      standing := CASE WHEN v_one.least <= v_mine - 2 THEN 'surplus' ELSE 'held' END;
    ELSIF v_one.holder IS NOT NULL THEN
      standing := 'another''s';
    ELSIF v_mine >= v_one.share AND v_one.name <> ALL (p_anyway) THEN
      standing := 'free';
    ELSIF pg_try_advisory_lock(v_key[1], v_key[2]) THEN
      v_mine := v_mine + 1;
      standing := 'held';
    ELSE
      standing := 'another''s';
    END IF;
    RETURN NEXT;
  END LOOP;
END;
$$;
