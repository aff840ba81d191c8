-- Why a message cannot be stored with what it says beside its payload, in words that say what to mend; NULL when it can.
-- STABLE, as format() is: see message_fault.
CREATE OR REPLACE FUNCTION envelope_fault(
  p_stream_key text, p_topic text, p_headers json, p_scheduled_for timestamptz, p_max_payload_bytes integer)
RETURNS text
LANGUAGE sql STABLE
RETURN CASE
  WHEN p_stream_key = '' THEN 'stream_key is empty; leave it out for a message without order'
  WHEN length(p_stream_key) > 1000 THEN 'stream_key has more than 1000 characters'
  WHEN length(p_topic) > 1000 THEN 'topic has more than 1000 characters'
  WHEN octet_length(p_headers::text) > p_max_payload_bytes
    THEN format('headers have %s bytes, more than the %s allowed', octet_length(p_headers::text), p_max_payload_bytes)
  -- A time that never comes would hold back its stream for ever.
  WHEN NOT isfinite(p_scheduled_for) THEN 'scheduled_for is not a time'
END;
