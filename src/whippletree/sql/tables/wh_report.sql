-- One report on one message, read from JSON and resolved to its stream.
CREATE TYPE wh_report AS (
  queue text,
  -- complete, fail, release or renew.
  verb text,
  place integer,
  message_id uuid,
  stream_id uuid,
  version bigint,
  lease_token bigint,
  error text,
  retry_seconds double precision,
  -- Why the report cannot be taken; NULL when it can.
  fault text
);
