-- The workers' row of a stream, there while the stream has work in a queue. The unit of claiming.
-- No CHECK, which PostgreSQL would parse for every message stored alone: only our functions write here, and `verify` looks.
CREATE TABLE wh_active_streams (
  stream_id uuid NOT NULL,
  -- now when work is waiting, the retry time when the head failed, infinity when parked. A lease leaves it, its renewal sets
  -- it to the lease's expiry.
  ready_at timestamptz NOT NULL,
  -- The last version that is finished. The next one is the head.
  head_version bigint NOT NULL,
  -- When the stream was last claimed or moved on. A stream that proves empty is looked at again after as long again.
  moved_at timestamptz NOT NULL,
  -- The lease: who may work on versions head_version + 1 to leased_through, until when, under which token.
  lease_expiry timestamptz,
  instance_id uuid,
  lease_token bigint,
  leased_through bigint,
  -- Since when it had been ready when it was last claimed: its place among those that wait, should its holder die.
  ready_since timestamptz,
  -- Its partition is told from this by their number, which may change.
  stream_hash integer NOT NULL,
  -- How often the head has been handed out. Counted at the claim, so that a receptor that kills its process counts.
  attempts integer NOT NULL DEFAULT 0,
  -- outbox, inbox, or the name of a kind of event work.
  queue text COLLATE "C" NOT NULL,
  -- Why the head failed last; NULL when it has not.
  error text,
  PRIMARY KEY (stream_id, queue)
-- Every row of a page finds room beside it to be written once more with a lease, which is longer: no index is touched then.
) WITH (fillfactor = 38, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Partial, so that only a claim can use it: to a planner that believes the table to be empty, because it was analyzed just
-- when everything was done, reading the whole queue in it looks as cheap as finding a stream by its key.
CREATE INDEX wh_active_streams_ready ON wh_active_streams (queue, ready_at) WHERE ready_at < 'infinity';
-- Tokens rise for ever, so that a token can fence writes outside this database too.
CREATE SEQUENCE wh_lease_tokens;
