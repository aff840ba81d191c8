-- Says for how long the inbox knows the ids that it has accepted; NULL, as after installation, means for ever. Choose more
-- than the longest time after which any transport can deliver a message again.
CREATE OR REPLACE FUNCTION change_deduplication_retention(p_retention interval)
RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  UPDATE wh_settings SET deduplication_retention = p_retention;
$$;
