-- Raises for the first message that cannot be stored, naming its place and what to mend.
CREATE OR REPLACE FUNCTION require_storable(
  p_stream_ids uuid[], p_message_ids uuid[], p_message_types text[], p_payloads json[])
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_max_payload_bytes integer := (SELECT max_payload_bytes FROM wh_settings);
  v_place bigint;
  v_fault text;
BEGIN
  SELECT c.place, c.fault INTO v_place, v_fault
  FROM (
    SELECT m.place, message_fault(m.stream_id, m.message_id, m.message_type, m.payload, v_max_payload_bytes) AS fault
    FROM unnest(p_stream_ids, p_message_ids, p_message_types, p_payloads) WITH ORDINALITY
      AS m(stream_id, message_id, message_type, payload, place)
  ) c
  WHERE c.fault IS NOT NULL
  LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'message % cannot be stored: %', v_place, v_fault USING ERRCODE = 'WH004';
  END IF;
END;
$$;
