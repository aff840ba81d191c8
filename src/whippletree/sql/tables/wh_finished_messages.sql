-- Finished messages, kept in debug mode only. Readable through the views wh_outbox and wh_inbox.
CREATE TABLE wh_finished_messages (
  LIKE wh_messages,
  partition_number integer NOT NULL,
  attempts integer NOT NULL,
  instance_id uuid NOT NULL,
  processed_at timestamptz NOT NULL
);
-- Not unique: an id without a stream may be stored again once it is finished.
CREATE INDEX wh_finished_messages_stream ON wh_finished_messages (queue, stream_id, version);
