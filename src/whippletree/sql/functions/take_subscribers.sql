-- Takes free subscribers for this session, and says of each: held, free, another's, or surplus, when it is held and a
-- standby has at least two fewer. A session takes what is free only while no other standby has fewer; the names of
-- p_anyway, which were free the last time, it takes all the same. A silent holder's session is ended.
CREATE OR REPLACE FUNCTION take_subscribers(p_names text[], p_anyway text[], p_silent_seconds double precision)
RETURNS TABLE (subscriber_name text, standing text)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_locks jsonb;
  v_mine integer;
  v_name text;
  v_least integer;
  v_holder jsonb;
  v_key integer[];
BEGIN
  SELECT COALESCE(jsonb_agg(to_jsonb(l)), '[]') INTO v_locks FROM subscriber_locks(p_names, p_silent_seconds) l;
  v_mine := (SELECT count(*) FROM jsonb_array_elements(v_locks) l
             WHERE (l->>'holds')::boolean AND (l->>'process_id')::integer = pg_backend_pid());
  FOREACH v_name IN ARRAY p_names LOOP
    v_key := subscriber_lock(v_name);
    v_holder := (SELECT l FROM jsonb_array_elements(v_locks) l
                 WHERE l->>'subscriber_name' = v_name AND (l->>'holds')::boolean);
    -- How many the least loaded of the other sessions has that stand by for this subscriber.
    v_least := (
      SELECT min((SELECT count(*) FROM jsonb_array_elements(v_locks) h
                  WHERE (h->>'holds')::boolean AND h->'process_id' = s->'process_id'))
      FROM jsonb_array_elements(v_locks) s
      WHERE s->>'subscriber_name' = v_name AND NOT (s->>'holds')::boolean AND NOT (s->>'silent')::boolean
        AND (s->>'process_id')::integer <> pg_backend_pid());
    IF (v_holder->>'silent')::boolean AND (v_holder->>'process_id')::integer <> pg_backend_pid() THEN
      PERFORM pg_terminate_backend((v_holder->>'process_id')::integer, 1000);
      v_holder := NULL;
    END IF;
    subscriber_name := v_name;
    IF (v_holder->>'process_id')::integer = pg_backend_pid() THEN
      standing := CASE WHEN v_least <= v_mine - 2 THEN 'surplus' ELSE 'held' END;
    ELSIF v_holder IS NOT NULL THEN
      standing := 'another''s';
    ELSIF v_mine > v_least AND v_name <> ALL (p_anyway) THEN
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
