-- The channel on which waiting instances of this schema listen.
CREATE OR REPLACE FUNCTION wake_channel()
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT 'whippletree:' || current_schema();
$$;
