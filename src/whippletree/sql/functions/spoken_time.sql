-- A length of time as people say it: 300 ms, 41 s, 12 min, 3 h, 5 d.
CREATE OR REPLACE FUNCTION spoken_time(p_time interval)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN t.seconds < 1 THEN round(1000 * t.seconds) || ' ms'
    WHEN t.seconds < 120 THEN round(t.seconds) || ' s'
    WHEN t.seconds < 7200 THEN round(t.seconds / 60) || ' min'
    WHEN t.seconds < 172800 THEN round(t.seconds / 3600) || ' h'
    ELSE round(t.seconds / 86400) || ' d'
  END
  FROM (SELECT greatest(0, EXTRACT(epoch FROM p_time)) AS seconds) t;
$$;
