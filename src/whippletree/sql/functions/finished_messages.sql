-- The places of the given runs that are finished: every message up to the version is gone and the stream has moved past
-- it, and the last one is not among the dead letters. An instance asks this of what it reported in a call whose answer
-- was lost. While its lease lasts nobody else can have finished them; after that this cannot tell who has.
CREATE OR REPLACE FUNCTION finished_messages(
  p_queues text[], p_stream_ids uuid[], p_through bigint[], p_message_ids uuid[])
RETURNS integer[]
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT ARRAY(
    SELECT r.place::integer
    FROM unnest(p_queues, p_stream_ids, p_through, p_message_ids) WITH ORDINALITY
      AS r(queue, stream_id, through, message_id, place)
    WHERE NOT EXISTS (SELECT FROM wh_messages m
        WHERE m.queue = r.queue AND m.stream_id = r.stream_id AND m.version <= r.through)
      AND NOT EXISTS (SELECT FROM wh_active_streams s
        WHERE s.queue = r.queue AND s.stream_id = r.stream_id AND s.head_version < r.through)
      AND NOT EXISTS (SELECT FROM wh_dead_letters d WHERE d.message_id = r.message_id AND d.queue = r.queue)
    ORDER BY r.place);
$$;
