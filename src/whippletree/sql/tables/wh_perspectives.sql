-- The perspectives whose rows can be built again. A fold has a table of rows per generation, and wh_rows_NAME shows the
-- live one; one that writes tables of its own has copies of them.
CREATE TABLE wh_perspectives (
  perspective_name text PRIMARY KEY CHECK (perspective_name ~ '^[A-Za-z_][A-Za-z0-9_.]{0,99}$'),
  -- uuid when a row belongs to a stream, text when the perspective chooses its keys, none when it writes by its own SQL.
  key_type text NOT NULL CHECK (key_type IN ('uuid', 'text', 'none')),
  -- The columns as they were declared last: {"name": {"path": ["field", …], "type": "text"}}. A rebuild has them.
  columns jsonb NOT NULL,
  -- The tables that it writes by its own SQL, each with its schema.
  tables text[] NOT NULL DEFAULT '{}',
  -- Of one that follows the feed: the events that it folds.
  patterns text[] NOT NULL DEFAULT '{}',
  -- The generation that readers see and that new events are folded into.
  live_generation integer NOT NULL DEFAULT 1,
  -- The one that a rebuild is filling, and the one before the last swap; NULL when there is none.
  building_generation integer,
  previous_generation integer,
  -- The last number that a generation was given. None is given twice: an append that knew of an abandoned rebuild may have
  -- left work for it behind.
  last_generation integer NOT NULL DEFAULT 1
);
