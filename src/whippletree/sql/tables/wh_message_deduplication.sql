-- Every message id that the inbox has accepted. Permanent, unless a retention is asked for.
CREATE TABLE wh_message_deduplication (
  message_id uuid PRIMARY KEY,
  first_seen_at timestamptz NOT NULL,
  -- sha256 of type and payload: the same id with another body is a conflict, not a duplicate.
  body_hash bytea NOT NULL
);
CREATE INDEX wh_message_deduplication_first_seen ON wh_message_deduplication USING brin (first_seen_at);
