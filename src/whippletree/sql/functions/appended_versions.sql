-- The versions of events that are in the store already; NULL when none of them is. Some but not all, or one in another
-- stream, means that the caller has mixed up its ids.
CREATE OR REPLACE FUNCTION appended_versions(p_stream_ids uuid[], p_event_ids uuid[])
RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_versions bigint[];
  v_elsewhere integer;
BEGIN
  SELECT array_agg(s.version ORDER BY e.place), count(*) FILTER (WHERE s.stream_id <> e.stream_id)
  INTO v_versions, v_elsewhere
  FROM unnest(p_stream_ids, p_event_ids) WITH ORDINALITY AS e(stream_id, event_id, place)
  JOIN wh_event_store s ON s.event_id = e.event_id;
  IF v_elsewhere > 0 OR cardinality(v_versions) <> cardinality(p_event_ids) THEN
    RAISE EXCEPTION 'some of these events were appended before, the others not, or to another stream'
      USING ERRCODE = 'WH004', HINT = 'Give every event an id of its own, and repeat an append only as a whole.';
  END IF;
  RETURN v_versions;
END;
$$;
