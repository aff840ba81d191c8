-- Says that a claim found nothing in a queue, and from when on the next one has to look.
CREATE OR REPLACE FUNCTION found_nothing(p_queue text, p_as_of timestamptz)
RETURNS SETOF wh_work
LANGUAGE sql STABLE
AS $$
  SELECT 'nothing', p_queue, NULL::integer, NULL::uuid, NULL::bigint, NULL::uuid, NULL, NULL, NULL::json, NULL::json,
    NULL::uuid, NULL::uuid, NULL::double precision, NULL::integer, NULL::bigint, next_scan(NULL, p_as_of);
$$;
