-- Which receptor has handled which event, or has it before it: a row per event and receptor.
CREATE TABLE wh_receptor_log (
  stream_id uuid NOT NULL,
  version bigint NOT NULL,
  event_id uuid NOT NULL,
  created_at timestamptz NOT NULL,
  -- When and by whom it was handled; NULL before.
  processed_at timestamptz,
  instance_id uuid,
  attempts integer NOT NULL DEFAULT 0,
  receptor_name text NOT NULL,
  -- Why it was passed over, when an operator skipped it.
  skipped text,
  PRIMARY KEY (receptor_name, stream_id, version)
) WITH (fillfactor = 80);
CREATE INDEX wh_receptor_log_event ON wh_receptor_log (event_id);
