-- What became of something that was handed in, as a row of a work batch's answer.
CREATE OR REPLACE FUNCTION work_answer(
  p_kind text, p_queue text, p_place integer, p_stream_id uuid, p_message_id uuid, p_detail text)
RETURNS wh_work
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT ROW(p_kind, p_queue, p_place, p_stream_id, NULL, p_message_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, p_detail)::wh_work;
$$;
