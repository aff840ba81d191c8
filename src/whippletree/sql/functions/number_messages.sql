-- Takes the next versions of the given streams, in key order, and returns the version of each message, in the
-- order given. The writers' rows stay locked to the end of the transaction: version order is commit order.
-- A message without a stream is a stream of its own, needs no writers' row and has version 1.
CREATE OR REPLACE FUNCTION number_messages(p_queue text, p_stream_ids uuid[], p_stream_keys text[])
RETURNS bigint[]
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  WITH message AS (
    SELECT m.stream_id, m.stream_key, m.ordinal
    FROM unnest(p_stream_ids, p_stream_keys) WITH ORDINALITY AS m(stream_id, stream_key, ordinal)
  ), numbered AS (
    INSERT INTO wh_streams AS w (stream_id, stream_key, event_version, outbox_version, inbox_version)
    SELECT m.stream_id, max(m.stream_key), count(*) FILTER (WHERE p_queue = 'events'),
      count(*) FILTER (WHERE p_queue = 'outbox'), count(*) FILTER (WHERE p_queue = 'inbox')
    FROM message m
    WHERE m.stream_id IS NOT NULL
    GROUP BY m.stream_id
    ORDER BY m.stream_id
    ON CONFLICT (stream_id) DO UPDATE
    SET stream_key = COALESCE(w.stream_key, EXCLUDED.stream_key),
        event_version = w.event_version + EXCLUDED.event_version,
        outbox_version = w.outbox_version + EXCLUDED.outbox_version,
        inbox_version = w.inbox_version + EXCLUDED.inbox_version
    RETURNING w.stream_id, CASE p_queue WHEN 'outbox' THEN w.outbox_version WHEN 'inbox' THEN w.inbox_version ELSE w.event_version END
        AS last_version
  )
  SELECT array_agg(COALESCE(n.last_version - placed.behind, 1) ORDER BY placed.ordinal)
  FROM (
    SELECT m.stream_id, m.ordinal, row_number() OVER (PARTITION BY m.stream_id ORDER BY m.ordinal DESC) - 1 AS behind
    FROM message m
  ) placed
  LEFT JOIN numbered n USING (stream_id);
$$;
