-- The feed: all events in one order, numbered after they are committed. Inserted, never changed.
CREATE TABLE wh_event_sequence (
  -- 1, 2, 3 … without a gap.
  number bigint PRIMARY KEY,
  version bigint NOT NULL,
  stream_id uuid NOT NULL,
  -- On the last row of each numbering, what it could see: every arrival below seen_below, except those of seen_open,
  -- whose transactions had not ended. The next numbering takes what is not in there, and nothing else.
  seen_below bigint,
  seen_open bigint[],
  CHECK ((seen_below IS NULL) = (seen_open IS NULL))
);
