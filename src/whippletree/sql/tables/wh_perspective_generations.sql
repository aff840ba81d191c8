-- The generations of rows that there are. One that is neither live, nor built, nor kept for undo is about to be dropped.
CREATE TABLE wh_perspective_generations (
  perspective_name text NOT NULL,
  generation integer NOT NULL,
  -- The declared columns that its table has. Generated from the row by PostgreSQL.
  columns jsonb NOT NULL,
  -- Of one that follows the feed and is kept for undo: the number of the last event in its rows.
  checkpoint bigint,
  PRIMARY KEY (perspective_name, generation)
);
