-- Refuses a message without a stream whose id is that of a stream: it would be filed among that stream's messages.
CREATE OR REPLACE FUNCTION require_ids_of_their_own(p_stream_ids uuid[], p_message_ids uuid[])
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_taken uuid;
BEGIN
  SELECT m.message_id INTO v_taken
  FROM unnest(p_stream_ids, p_message_ids) AS m(stream_id, message_id)
  WHERE m.stream_id IS NULL AND EXISTS (SELECT FROM wh_streams w WHERE w.stream_id = m.message_id OFFSET 0)
  LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'message_id % is the id of a stream; give every message an id of its own', v_taken
      USING ERRCODE = 'WH004';
  END IF;
END;
$$;
