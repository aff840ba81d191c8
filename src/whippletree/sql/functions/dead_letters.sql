-- The messages that were given up, the newest first.
CREATE OR REPLACE FUNCTION dead_letters(p_limit integer DEFAULT 100, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (letter_id bigint, queue text, stream_name text, version bigint, message_id uuid, message_type text,
  attempts integer, error text, reason text, since double precision)
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT d.letter_id, d.queue, described_stream(d.stream_id), d.version, d.message_id, d.message_type, d.attempts,
    d.error, d.reason, EXTRACT(epoch FROM p_as_of - d.died_at)::double precision
  FROM wh_dead_letters d
  ORDER BY d.letter_id DESC
  LIMIT p_limit;
$$;
