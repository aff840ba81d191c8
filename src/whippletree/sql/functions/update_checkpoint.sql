-- UPDATE wh_perspective_checkpoints SET status = 'Pending', error = NULL: failed checkpoints are redriven, in order.
-- Nothing else of a checkpoint can be changed by hand.
CREATE OR REPLACE FUNCTION update_checkpoint()
RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NEW.status <> 'Pending' OR NEW.error IS NOT NULL OR OLD.status <> 'Failed'
    OR (NEW.stream_id, NEW.perspective_name) <> (OLD.stream_id, OLD.perspective_name) THEN
    RAISE EXCEPTION 'a checkpoint can only be set from Failed to Pending with no error, which redrives it'
      USING ERRCODE = 'WH004';
  END IF;
  UPDATE wh_active_streams s
  SET ready_at = clock_timestamp(), attempts = 0, error = NULL, moved_at = clock_timestamp()
  WHERE s.queue = 'perspective/' || OLD.perspective_name AND s.stream_id = OLD.stream_id AND s.instance_id IS NULL;
  PERFORM wake_waiting_instances();
  RETURN NEW;
END;
$$;
