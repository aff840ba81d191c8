-- Which work an event of a type makes: patterns are resolved once per type, so that none is matched per event.
CREATE TABLE wh_event_types (
  event_type text PRIMARY KEY,
  -- The queues that get work: perspective/NAME and receptor/NAME.
  queues text[] NOT NULL
);
