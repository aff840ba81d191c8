-- What the whole installation agrees on: one row. Changed by functions only.
CREATE TABLE wh_settings (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  -- Number of partitions that streams hash to. A caller with another number is refused.
  partition_count integer NOT NULL DEFAULT 10000 CHECK (partition_count BETWEEN 1 AND 1000000),
  -- Largest payload that is stored, in bytes of JSON text.
  max_payload_bytes integer NOT NULL DEFAULT 262144 CHECK (max_payload_bytes BETWEEN 1024 AND 16777216),
  -- For how long the inbox knows the ids that it has accepted; NULL: for ever. See forget_messages.
  deduplication_retention interval CHECK (deduplication_retention > '0'),
  -- The server on which arrivals are counted at present, and what is added to its transaction ids. See rebase_arrivals.
  server_id bigint NOT NULL,
  arrival_base bigint NOT NULL DEFAULT 0
);
INSERT INTO wh_settings (server_id) SELECT system_identifier FROM pg_control_system();
