-- One row of a work batch's answer: a claimed message, or what became of something that was handed in.
CREATE TYPE wh_work AS (
  -- claimed, nothing, stored, duplicate, conflict, refused, rejected or partitions.
  kind text,
  queue text,
  -- Place in the list that was handed in.
  place integer,
  stream_id uuid,
  version bigint,
  message_id uuid,
  message_type text,
  topic text,
  payload json,
  headers json,
  correlation_id uuid,
  causation_id uuid,
  -- When it was stored, in seconds since 1970: a client reads a number in a tenth of the time that a timestamptz takes.
  created_at double precision,
  attempts integer,
  lease_token bigint,
  -- The reason, in words.
  detail text
);
