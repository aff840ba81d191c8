-- Messages for later. One takes its place in its stream when it is due, and not before: until then it holds nobody back,
-- and cancelling it leaves no hole.
CREATE TABLE wh_scheduled_messages (
  message_id uuid PRIMARY KEY,
  due_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL,
  -- Where it goes when it is due.
  queue text NOT NULL CHECK (queue IN ('outbox', 'inbox')),
  -- The caller's name for it, by which it can be cancelled.
  schedule_key text,
  -- The message as store_outbox_batch and store_inbox_batch take it.
  message jsonb NOT NULL,
  CONSTRAINT wh_scheduled_messages_key UNIQUE (schedule_key)
);
CREATE INDEX wh_scheduled_messages_due ON wh_scheduled_messages (due_at);
