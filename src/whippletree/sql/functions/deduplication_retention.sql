-- For how long the inbox knows the ids that it has accepted; NULL: for ever. See change_deduplication_retention.
CREATE OR REPLACE FUNCTION deduplication_retention()
RETURNS interval
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT s.deduplication_retention FROM wh_settings s;
$$;
