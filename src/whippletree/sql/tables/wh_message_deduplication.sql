-- Every message id that the inbox has accepted, for ever or for the retention of wh_settings. Why it is not partitioned:
-- docs/decisions/deduplication.md.
CREATE TABLE wh_message_deduplication (
  message_id uuid PRIMARY KEY,
  first_seen_at timestamptz NOT NULL,
  -- Half of the sha256 of type and payload: the same id with another body is a conflict, not a duplicate.
  body_hash uuid NOT NULL
);
CREATE INDEX wh_message_deduplication_first_seen ON wh_message_deduplication (first_seen_at);
