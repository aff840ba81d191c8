-- Says that a claim found nothing in a queue, and at what time of the database it looked (created_at).
CREATE OR REPLACE FUNCTION found_nothing(p_queue text, p_as_of timestamptz)
RETURNS SETOF wh_work
LANGUAGE sql IMMUTABLE
AS $$
  SELECT 'nothing', p_queue, NULL::integer, NULL::uuid, NULL::bigint, NULL::uuid, NULL, NULL, NULL::json, NULL::json,
    NULL::uuid, NULL::uuid, p_as_of, NULL::integer, NULL::bigint, NULL;
$$;
