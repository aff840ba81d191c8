-- Claims from one queue: messages from the outbox or the inbox, events for a perspective or a receptor. perspective/*
-- and receptor/* mean all that are registered, in an order that favours none. A rebuild comes last, and gets half of what
-- is left, so that there is room for new events while it goes on.
CREATE OR REPLACE FUNCTION claim_work(
  p_instance_id uuid, p_queue text, p_limit integer, p_lease_seconds double precision, p_run_limit integer,
  p_byte_limit bigint, p_max_attempts integer, p_ready_since timestamptz, p_as_of timestamptz)
RETURNS SETOF wh_work
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_queue text;
  v_left integer := p_limit;
  v_claimed integer;
BEGIN
  IF p_queue IN ('outbox', 'inbox') THEN
    IF p_limit > 0 AND has_ready_streams(p_queue, p_ready_since, p_as_of) THEN
      RETURN QUERY SELECT * FROM claim_messages(p_instance_id, p_queue, p_limit, p_lease_seconds, p_run_limit,
        p_byte_limit, p_max_attempts, p_ready_since, p_as_of);
    END IF;
    RETURN;
  END IF;
  FOR v_queue IN SELECT q FROM event_queues(p_queue) AS q ORDER BY q LIKE '%@%', random() LOOP
    EXIT WHEN v_left <= 0;
    CONTINUE WHEN NOT has_ready_streams(v_queue, p_ready_since, p_as_of);
    RETURN QUERY SELECT * FROM claim_event_work(p_instance_id, v_queue,
      CASE WHEN v_queue LIKE '%@%' THEN (v_left + 1) / 2 ELSE v_left END, p_lease_seconds, p_run_limit,
      p_max_attempts, p_ready_since, p_as_of);
    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    v_left := v_left - v_claimed;
  END LOOP;
END;
$$;
