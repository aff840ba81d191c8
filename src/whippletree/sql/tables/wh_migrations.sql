-- Which migrations this schema has seen, and which version of Whippletree brought the functions up to date.
CREATE TABLE wh_migrations (
  migration text PRIMARY KEY,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE wh_installation (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  -- Version of the package that installed the functions and views. An older package refuses to touch them.
  version text NOT NULL,
  -- Digest of the functions and views, so that an unchanged installation is left alone.
  digest text NOT NULL
);
