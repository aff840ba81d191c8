-- How the parts of a rebuild stand, in a sentence.
CREATE OR REPLACE FUNCTION told_parts(p_perspective_name text, p_generation integer)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT format('its events are being %s, and %s of %s parts are not finished%s',
    CASE WHEN bool_or(s.subscriber_name LIKE '%/sort-%') THEN 'sorted by key' ELSE 'folded' END,
    count(*) FILTER (WHERE s.checkpoint < s.through), count(*), COALESCE('; ' || string_agg(
      format('%s is at event %s, %s, after %s attempts: %s', s.subscriber_name, s.failed_number, s.state, s.attempts, s.error), '; '
      ORDER BY s.subscriber_name) FILTER (WHERE s.error IS NOT NULL), ''))
  FROM rebuild_parts(p_perspective_name, p_generation) s;
$$;
