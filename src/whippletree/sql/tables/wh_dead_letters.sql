-- Messages that were given up: skipped by an operator, or out of attempts without a stream to hold.
CREATE TABLE wh_dead_letters (
  letter_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  LIKE wh_messages,
  attempts integer NOT NULL,
  error text,
  reason text NOT NULL,
  died_at timestamptz NOT NULL
);
CREATE INDEX wh_dead_letters_message_id ON wh_dead_letters (message_id);
