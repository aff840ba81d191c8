-- Takes back a scheduled message by its key, in the caller's transaction. False when there is none: it was never
-- scheduled, was cancelled before, or has become due and gone its way.
CREATE OR REPLACE FUNCTION cancel_message(p_schedule_key text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  DELETE FROM wh_scheduled_messages WHERE schedule_key = p_schedule_key;
  RETURN FOUND;
END;
$$;
