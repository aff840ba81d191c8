-- activate_streams for one stream; the reasons stand there.
CREATE OR REPLACE FUNCTION activate_stream(
  p_queue text, p_stream_id uuid, p_head_version bigint, p_ready_at timestamptz, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
BEGIN
  LOOP
    PERFORM FROM wh_active_streams s WHERE s.queue = p_queue AND s.stream_id = p_stream_id FOR KEY SHARE;
    EXIT WHEN FOUND;
    INSERT INTO wh_active_streams (queue, stream_id, partition_number, ready_at, head_version, moved_at)
    SELECT p_queue, p_stream_id, partition_of(p_stream_id, s.partition_count), p_ready_at, p_head_version, p_as_of
    FROM wh_settings s
    ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
END;
$$;
