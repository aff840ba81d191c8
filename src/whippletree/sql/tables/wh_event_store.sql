-- The events of every stream, for ever. Appended, never changed.
CREATE TABLE wh_event_store (
  stream_id uuid NOT NULL,
  -- Identity given by the producer: appending it again changes nothing.
  event_id uuid NOT NULL,
  -- Place in the stream: 1, 2, 3 … without a gap.
  version bigint NOT NULL CHECK (version > 0),
  -- Drawn before commit, so it has gaps and is not the order of commit: never read on from it.
  position bigint GENERATED ALWAYS AS IDENTITY,
  -- The transaction that appended it, above those of any server from which this database was restored. What became
  -- visible since the feed was last numbered is found by it; it is not an order.
  arrival bigint NOT NULL,
  created_at timestamptz NOT NULL,
  correlation_id uuid,
  causation_id uuid,
  -- Which shape of its type the payload has; readers lift older shapes.
  shape integer NOT NULL DEFAULT 1 CHECK (shape > 0),
  event_type text NOT NULL,
  payload json NOT NULL,
  metadata json,
  PRIMARY KEY (stream_id, version)
);
CREATE UNIQUE INDEX wh_event_store_event_id ON wh_event_store (event_id);
CREATE INDEX wh_event_store_arrival ON wh_event_store (arrival);
