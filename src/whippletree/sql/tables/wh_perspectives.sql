-- The perspectives that keep rows. Each has a table of rows per generation; wh_rows_NAME shows the live one.
CREATE TABLE wh_perspectives (
  perspective_name text PRIMARY KEY CHECK (perspective_name ~ '^[A-Za-z_][A-Za-z0-9_.]{0,99}$'),
  -- uuid when a row belongs to a stream, text when the perspective chooses its keys.
  key_type text NOT NULL CHECK (key_type IN ('uuid', 'text')),
  -- The declared columns: {"name": {"path": ["field", …], "type": "text"}}. Generated from the row by PostgreSQL.
  columns jsonb NOT NULL,
  -- The generation that readers see and that new events are folded into.
  live_generation integer NOT NULL DEFAULT 1,
  -- The one that a rebuild is filling, and the one before the last swap; NULL when there is none.
  building_generation integer,
  previous_generation integer,
  -- The last number that a generation was given. None is given twice: an append that knew of an abandoned rebuild may have
  -- left work for it behind.
  last_generation integer NOT NULL DEFAULT 1
);
