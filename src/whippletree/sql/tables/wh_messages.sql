-- The messages that wait in the outbox and the inbox. Inserted and deleted, never updated: all state is on the stream.
-- No CHECK, which PostgreSQL would parse for every message: only our functions write here, and `verify` counts.
CREATE TABLE wh_messages (
  stream_id uuid NOT NULL,
  -- Identity given by the producer; a message without a stream has its own id as stream_id.
  message_id uuid NOT NULL,
  -- Place in the stream: 1, 2, 3 … The only order there is.
  version bigint NOT NULL,
  -- Information for people; never order.
  created_at timestamptz NOT NULL,
  -- Not before this time. It holds back what follows in its stream.
  scheduled_for timestamptz,
  correlation_id uuid,
  causation_id uuid,
  queue text COLLATE "C" NOT NULL,
  message_type text NOT NULL,
  -- Where an outbox message goes to; where an inbox message came from.
  topic text NOT NULL,
  -- json, not jsonb: kept to the letter as the producer encoded it.
  payload json NOT NULL,
  headers json,
  -- The stream first: every search knows it, and it tells two rows apart where the queue seldom does.
  PRIMARY KEY (stream_id, queue, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Partial, though it holds every message, so that only a search for an id, which says version > 0, can use it: see
-- wh_active_streams_ready.
CREATE UNIQUE INDEX wh_messages_message_id ON wh_messages (message_id, queue) WHERE version > 0;
