-- Which events a perspective folds. A pattern is an event type; .* stands for anything.
CREATE TABLE wh_perspective_mappings (
  perspective_name text NOT NULL CHECK (perspective_name ~ '^[A-Za-z_][A-Za-z0-9_.]{0,99}$'),
  event_type_pattern text NOT NULL,
  PRIMARY KEY (perspective_name, event_type_pattern)
);
