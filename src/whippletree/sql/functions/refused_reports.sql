-- The reports at the given places, whose lease is not the reporter's, as rows of a work batch's answer.
CREATE OR REPLACE FUNCTION refused_reports(p_verb text, p_queues text[], p_stream_ids uuid[], p_places integer[])
RETURNS SETOF wh_work
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  -- Usually nothing was refused, and every poll asks four times.
  IF cardinality(p_places) > 0 THEN
    RETURN QUERY
    SELECT w.* FROM unnest(p_places) AS place,
      work_answer('rejected', p_queues[place], place, p_stream_ids[place], NULL, p_verb) AS w;
  END IF;
END;
$$;
