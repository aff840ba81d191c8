-- Raises unless the epoch is the subscriber's present one: another has begun to follow since.
CREATE OR REPLACE FUNCTION require_epoch(p_name text, p_epoch bigint)
RETURNS void
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_epoch bigint := (SELECT epoch FROM wh_subscribers WHERE subscriber_name = p_name);
BEGIN
  IF v_epoch IS DISTINCT FROM p_epoch THEN
    RAISE EXCEPTION 'subscriber % is followed under epoch %, not under % any more', p_name, v_epoch, p_epoch
      USING ERRCODE = 'WH008';
  END IF;
END;
$$;
