-- Which stored events a receptor handles. Patterns as in wh_perspective_mappings.
CREATE TABLE wh_receptor_mappings (
  receptor_name text NOT NULL CHECK (receptor_name ~ '^[A-Za-z_][A-Za-z0-9_.]{0,99}$'),
  event_type_pattern text NOT NULL,
  PRIMARY KEY (receptor_name, event_type_pattern)
);
