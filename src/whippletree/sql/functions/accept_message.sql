-- Remembers the id of one message for the inbox, and gives the message its version; NULL when the id was accepted before.
-- The writers' row comes first, as it does in store_inbox.
CREATE OR REPLACE FUNCTION accept_message(
  p_queue text, p_stream_id uuid, p_stream_key text, p_message_id uuid, p_message_type text, p_payload text,
  p_as_of timestamptz)
RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_version bigint := 1;
BEGIN
  IF p_queue IS DISTINCT FROM 'inbox' THEN
    RAISE EXCEPTION 'there is no queue %; give outbox or inbox', p_queue USING ERRCODE = 'WH004';
  END IF;
  IF p_stream_id IS NOT NULL THEN
    INSERT INTO wh_streams AS w (stream_id, stream_key, inbox_version) VALUES (p_stream_id, p_stream_key, 1)
    ON CONFLICT (stream_id) DO UPDATE
    SET stream_key = COALESCE(w.stream_key, EXCLUDED.stream_key), inbox_version = w.inbox_version + 1
    RETURNING w.inbox_version INTO v_version;
  END IF;
  INSERT INTO wh_message_deduplication (message_id, first_seen_at, body_hash)
  VALUES (p_message_id, COALESCE(p_as_of, clock_timestamp()), body_hash(p_message_type, p_payload))
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    UPDATE wh_streams SET inbox_version = inbox_version - 1 WHERE stream_id = p_stream_id;
    RETURN NULL;
  END IF;
  IF p_stream_id IS NULL THEN
    PERFORM require_ids_of_their_own(ARRAY[p_stream_id], ARRAY[p_message_id]);
  END IF;
  RETURN v_version;
END;
$$;
