-- One row per subscriber: how far it has followed the feed, and who does so.
CREATE TABLE wh_subscribers (
  subscriber_name text PRIMARY KEY CHECK (subscriber_name ~ '^[A-Za-z_][A-Za-z0-9_.:/-]{0,119}(@[0-9]+(/(sort|fold)-[0-9]+)?)?$'),
  -- The number of the last event that is finished.
  checkpoint bigint NOT NULL CHECK (checkpoint >= 0),
  -- Of a part of a rebuild: the number with which it is finished. NULL for one that goes on with the feed.
  through bigint,
  -- Raised by every holder that begins. Whatever a holder writes names it, and is refused when it is not the present one.
  epoch bigint NOT NULL DEFAULT 0,
  -- What its holder last said; standby when it was given up and nobody has taken it since. wh_subscriptions knows more.
  state text NOT NULL DEFAULT 'standby' CHECK (state IN ('standby', 'catching up', 'live', 'lost', 'parked')),
  holder uuid,
  -- True for a subscriber that only one holder at a time follows, under a session lock.
  coordinated boolean NOT NULL,
  -- True while the holder has nothing to do and listens: only then does an append notify.
  waiting boolean NOT NULL DEFAULT false,
  paused boolean NOT NULL DEFAULT false,
  -- How often the event after the checkpoint was tried in vain, which one that is, when it is tried again, and why.
  attempts integer NOT NULL DEFAULT 0,
  failed_number bigint,
  retry_at timestamptz,
  error text,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);
-- Every append asks whether somebody waits: it must not walk over what checkpoints leave behind.
CREATE INDEX wh_subscribers_waiting ON wh_subscribers (subscriber_name) WHERE waiting;
