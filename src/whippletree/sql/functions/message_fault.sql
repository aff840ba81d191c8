-- Why a message cannot be stored, in words that say what to mend; NULL when it can.
-- STABLE, as format() is: declared IMMUTABLE it could not be inlined into the queries that check whole batches.
CREATE OR REPLACE FUNCTION message_fault(
  p_stream_id uuid, p_message_id uuid, p_message_type text, p_payload json, p_max_payload_bytes integer)
RETURNS text
LANGUAGE sql STABLE
RETURN CASE
  WHEN p_message_id IS NULL THEN 'message_id is missing or is not a UUID'
  WHEN p_message_id = '00000000-0000-0000-0000-000000000000' THEN 'message_id is all zeros; give every message an id of its own'
  WHEN p_stream_id = '00000000-0000-0000-0000-000000000000' THEN 'stream_id is all zeros; leave it out for a message without order'
  WHEN p_stream_id = p_message_id THEN 'message_id is that of its stream; give every message an id of its own'
  -- The length apart: a counted repetition makes the expression many times slower.
  WHEN COALESCE(p_message_type, '') !~ '^[A-Za-z0-9_.+/:-]+$' OR length(p_message_type) > 200
    THEN 'message_type must be 1 to 200 letters, digits, or any of _ . + / : -'
  WHEN p_payload IS NULL THEN 'payload is missing'
  WHEN octet_length(p_payload::text) > p_max_payload_bytes
    THEN format('payload has %s bytes, more than the %s allowed; store large bodies elsewhere and send their address',
      octet_length(p_payload::text), p_max_payload_bytes)
  -- Most are too short, and have no escape, and the search is cheap.
  WHEN length(p_payload::text) > 128 AND is_too_deep(p_payload) THEN 'payload is nested more than 64 deep'
  WHEN strpos(p_payload::text, '\u') > 0 THEN escape_fault(p_payload)
END;
