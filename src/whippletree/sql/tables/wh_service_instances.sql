-- One heartbeat row per running instance.
CREATE TABLE wh_service_instances (
  instance_id uuid PRIMARY KEY,
  service_name text NOT NULL,
  host_name text NOT NULL,
  process_id integer NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  started_at timestamptz NOT NULL,
  last_heartbeat_at timestamptz NOT NULL,
  last_heartbeat timestamptz GENERATED ALWAYS AS (last_heartbeat_at) STORED,
  -- True once the instance was seen holding its session lock: when that is free, the instance is gone.
  session_locked boolean NOT NULL DEFAULT false,
  -- The queues that the instance works. Where it owns partitions but does not work a queue, others claim from it.
  queues text[] NOT NULL DEFAULT '{}',
  -- True while the instance has nothing to do and listens: only then does a storer notify.
  waiting boolean NOT NULL DEFAULT false,
  -- True when an operator wants the instance to finish what it has and to take no more.
  draining boolean NOT NULL DEFAULT false,
  -- Fingerprint of the membership for which this instance has settled its partitions.
  settled_for uuid,
  -- Raised whenever the instance's set of partitions changes, or orphans are freed: its next claim looks at everything.
  partitions_version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
