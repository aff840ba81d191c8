-- What people did to subscribers: redriven and skipped events, pauses.
CREATE TABLE wh_subscriber_actions (
  action_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  subscriber_name text NOT NULL,
  action text NOT NULL CHECK (action IN ('redrive', 'skip', 'pause', 'resume')),
  number bigint,
  event_id uuid,
  attempts integer NOT NULL,
  error text,
  reason text,
  acted_at timestamptz NOT NULL
);
