-- Whether an instance whose sessions bear the name has beaten within so many seconds.
CREATE OR REPLACE FUNCTION is_heard_of(p_session_name text, p_silent_seconds double precision)
RETURNS boolean
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM wh_service_instances i
    WHERE i.metadata ->> 'session' = p_session_name
      AND i.last_heartbeat_at > clock_timestamp() - make_interval(secs => p_silent_seconds));
$$;
