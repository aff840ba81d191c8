-- The writers' row of a stream, permanent. Its lock, held to commit, makes version order commit order.
-- Workers never lock it, so that those who write and those who work never wait for each other.
CREATE TABLE wh_streams (
  stream_id uuid PRIMARY KEY,
  -- The text that the caller knows the stream by, when it is not a UUID.
  stream_key text,
  -- The last version given out, per use of the stream. Dense: a rolled back version is given out again.
  event_version bigint NOT NULL DEFAULT 0,
  outbox_version bigint NOT NULL DEFAULT 0,
  inbox_version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
