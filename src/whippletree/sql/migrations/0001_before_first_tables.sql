-- The tables of the first version.
CREATE TABLE wh_migrations (
  migration text PRIMARY KEY,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE wh_installation (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version text NOT NULL,
  digest text NOT NULL
);
CREATE TYPE wh_work AS (
  kind text,
  queue text,
  place integer,
  stream_id uuid,
  version bigint,
  message_id uuid,
  message_type text,
  topic text,
  payload json,
  headers json,
  correlation_id uuid,
  causation_id uuid,
  created_at double precision,
  attempts integer,
  lease_token bigint,
  detail text
);
CREATE TYPE wh_report AS (
  queue text,
  verb text,
  place integer,
  message_id uuid,
  stream_id uuid,
  version bigint,
  lease_token bigint,
  error text,
  retry_seconds double precision,
  fault text
);
CREATE TABLE wh_settings (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  partition_count integer NOT NULL DEFAULT 10000 CHECK (partition_count BETWEEN 1 AND 1000000),
  max_payload_bytes integer NOT NULL DEFAULT 262144 CHECK (max_payload_bytes BETWEEN 1024 AND 16777216),
  deduplication_retention interval CHECK (deduplication_retention > '0'),
  server_id bigint NOT NULL,
  arrival_base bigint NOT NULL DEFAULT 0
);
INSERT INTO wh_settings (server_id) SELECT system_identifier FROM pg_control_system();
CREATE TABLE wh_streams (
  stream_id uuid PRIMARY KEY,
  stream_key text,
  event_version bigint NOT NULL DEFAULT 0,
  outbox_version bigint NOT NULL DEFAULT 0,
  inbox_version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE TABLE wh_messages (
  stream_id uuid NOT NULL,
  message_id uuid NOT NULL,
  version bigint NOT NULL,
  created_at timestamptz NOT NULL,
  scheduled_for timestamptz,
  correlation_id uuid,
  causation_id uuid,
  queue text COLLATE "C" NOT NULL,
  message_type text NOT NULL,
  topic text NOT NULL,
  payload json NOT NULL,
  headers json,
  PRIMARY KEY (stream_id, queue, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX wh_messages_message_id ON wh_messages (message_id, queue) WHERE version > 0;
CREATE TABLE wh_active_streams (
  stream_id uuid NOT NULL,
  ready_at timestamptz NOT NULL,
  head_version bigint NOT NULL,
  moved_at timestamptz NOT NULL,
  lease_expiry timestamptz,
  instance_id uuid,
  lease_token bigint,
  leased_through bigint,
  ready_since timestamptz,
  stream_hash integer NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  queue text COLLATE "C" NOT NULL,
  error text,
  PRIMARY KEY (stream_id, queue)
) WITH (fillfactor = 38, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX wh_active_streams_ready ON wh_active_streams (queue, ready_at) WHERE ready_at < 'infinity';
CREATE SEQUENCE wh_lease_tokens;
CREATE TABLE wh_service_instances (
  instance_id uuid PRIMARY KEY,
  service_name text NOT NULL,
  host_name text NOT NULL,
  process_id integer NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  started_at timestamptz NOT NULL,
  last_heartbeat_at timestamptz NOT NULL,
  last_heartbeat timestamptz GENERATED ALWAYS AS (last_heartbeat_at) STORED,
  session_locked boolean NOT NULL DEFAULT false,
  queues text[] NOT NULL DEFAULT '{}',
  waiting boolean NOT NULL DEFAULT false,
  draining boolean NOT NULL DEFAULT false,
  settled_for uuid,
  partitions_version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE wh_evicted_instances (
  instance_id uuid PRIMARY KEY,
  evicted_at timestamptz NOT NULL,
  evicted_by uuid NOT NULL,
  reason text NOT NULL
);
CREATE TABLE wh_partitions (
  partition_number integer PRIMARY KEY,
  instance_id uuid
) WITH (fillfactor = 50);
INSERT INTO wh_partitions (partition_number)
SELECT generate_series(0, partition_count - 1) FROM wh_settings;
CREATE TABLE wh_message_deduplication (
  message_id uuid PRIMARY KEY,
  first_seen_at timestamptz NOT NULL,
  body_hash uuid NOT NULL
);
CREATE INDEX wh_message_deduplication_first_seen ON wh_message_deduplication (first_seen_at);
CREATE TABLE wh_finished_messages (
  LIKE wh_messages,
  partition_number integer NOT NULL,
  attempts integer NOT NULL,
  instance_id uuid NOT NULL,
  processed_at timestamptz NOT NULL
);
CREATE INDEX wh_finished_messages_stream ON wh_finished_messages (queue, stream_id, version);
CREATE TABLE wh_dead_letters (
  letter_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  LIKE wh_messages,
  attempts integer NOT NULL,
  error text,
  reason text NOT NULL,
  died_at timestamptz NOT NULL
);
CREATE INDEX wh_dead_letters_message_id ON wh_dead_letters (message_id);
CREATE TABLE wh_scheduled_messages (
  message_id uuid PRIMARY KEY,
  due_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL,
  queue text NOT NULL CHECK (queue IN ('outbox', 'inbox')),
  schedule_key text,
  message jsonb NOT NULL,
  CONSTRAINT wh_scheduled_messages_key UNIQUE (schedule_key)
);
CREATE INDEX wh_scheduled_messages_due ON wh_scheduled_messages (due_at);
CREATE TABLE wh_event_store (
  stream_id uuid NOT NULL,
  event_id uuid NOT NULL,
  version bigint NOT NULL CHECK (version > 0),
  position bigint GENERATED ALWAYS AS IDENTITY,
  arrival bigint NOT NULL,
  created_at timestamptz NOT NULL,
  correlation_id uuid,
  causation_id uuid,
  shape integer NOT NULL DEFAULT 1 CHECK (shape > 0),
  event_type text NOT NULL,
  payload json NOT NULL,
  metadata json,
  PRIMARY KEY (stream_id, version)
);
CREATE UNIQUE INDEX wh_event_store_event_id ON wh_event_store (event_id);
CREATE INDEX wh_event_store_arrival ON wh_event_store (arrival);
CREATE TABLE wh_event_sequence (
  number bigint PRIMARY KEY,
  version bigint NOT NULL,
  stream_id uuid NOT NULL,
  seen_below bigint,
  seen_open bigint[],
  CHECK ((seen_below IS NULL) = (seen_open IS NULL))
);
CREATE TABLE wh_subscribers (
  subscriber_name text PRIMARY KEY CHECK (subscriber_name ~ '^[A-Za-z_][A-Za-z0-9_.:/-]{0,119}(@[0-9]+(/(sort|fold)-[0-9]+)?)?$'),
  checkpoint bigint NOT NULL CHECK (checkpoint >= 0),
  through bigint,
  epoch bigint NOT NULL DEFAULT 0,
  state text NOT NULL DEFAULT 'standby' CHECK (state IN ('standby', 'catching up', 'live', 'lost', 'parked')),
  holder uuid,
  coordinated boolean NOT NULL,
  waiting boolean NOT NULL DEFAULT false,
  paused boolean NOT NULL DEFAULT false,
  attempts integer NOT NULL DEFAULT 0,
  failed_number bigint,
  retry_at timestamptz,
  error text,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX wh_subscribers_waiting ON wh_subscribers (subscriber_name) WHERE waiting;
CREATE TABLE wh_subscriber_actions (
  action_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  subscriber_name text NOT NULL,
  action text NOT NULL CHECK (action IN ('redrive', 'skip', 'pause', 'resume', 'reset')),
  number bigint,
  event_id uuid,
  attempts integer NOT NULL,
  error text,
  reason text,
  acted_at timestamptz NOT NULL
);
CREATE TABLE wh_event_types (
  event_type text PRIMARY KEY,
  queues text[] NOT NULL
);
CREATE TABLE wh_perspective_mappings (
  perspective_name text NOT NULL CHECK (perspective_name ~ '^[A-Za-z_][A-Za-z0-9_.]{0,99}$'),
  event_type_pattern text NOT NULL,
  PRIMARY KEY (perspective_name, event_type_pattern)
);
CREATE TABLE wh_perspectives (
  perspective_name text PRIMARY KEY CHECK (perspective_name ~ '^[A-Za-z_][A-Za-z0-9_.]{0,99}$'),
  key_type text NOT NULL CHECK (key_type IN ('uuid', 'text', 'none')),
  columns jsonb NOT NULL,
  tables text[] NOT NULL DEFAULT '{}',
  patterns text[] NOT NULL DEFAULT '{}',
  live_generation integer NOT NULL DEFAULT 1,
  building_generation integer,
  previous_generation integer,
  last_generation integer NOT NULL DEFAULT 1
);
CREATE TABLE wh_perspective_generations (
  perspective_name text NOT NULL,
  generation integer NOT NULL,
  columns jsonb NOT NULL,
  checkpoint bigint,
  PRIMARY KEY (perspective_name, generation)
);
CREATE TABLE wh_receptor_mappings (
  receptor_name text NOT NULL CHECK (receptor_name ~ '^[A-Za-z_][A-Za-z0-9_.]{0,99}$'),
  event_type_pattern text NOT NULL,
  PRIMARY KEY (receptor_name, event_type_pattern)
);
CREATE TABLE wh_checkpoints (
  stream_id uuid NOT NULL,
  perspective_name text NOT NULL,
  version bigint NOT NULL,
  last_event_id uuid NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (perspective_name, stream_id)
) WITH (fillfactor = 70);
CREATE TABLE wh_receptor_log (
  stream_id uuid NOT NULL,
  version bigint NOT NULL,
  event_id uuid NOT NULL,
  created_at timestamptz NOT NULL,
  processed_at timestamptz,
  instance_id uuid,
  attempts integer NOT NULL DEFAULT 0,
  receptor_name text NOT NULL,
  skipped text,
  PRIMARY KEY (receptor_name, stream_id, version)
) WITH (fillfactor = 80);
CREATE INDEX wh_receptor_log_event ON wh_receptor_log (event_id);
