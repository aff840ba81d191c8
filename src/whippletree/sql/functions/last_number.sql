-- The last number of the feed that was given.
CREATE OR REPLACE FUNCTION last_number()
RETURNS bigint
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT COALESCE(max(number), 0) FROM wh_event_sequence;
$$;
