-- How far each perspective has folded each stream. What is under way or waiting is seen in wh_perspective_checkpoints.
CREATE TABLE wh_checkpoints (
  stream_id uuid NOT NULL,
  -- NAME, for every generation of rows but the first NAME@GENERATION: a swap moves none of them. See checkpoints_of.
  perspective_name text NOT NULL,
  -- The last event that is in the perspective's rows.
  version bigint NOT NULL,
  last_event_id uuid NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (perspective_name, stream_id)
) WITH (fillfactor = 70);
