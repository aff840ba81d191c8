-- What a batch refused, per element and with the reason, as a JSON array.
CREATE OR REPLACE FUNCTION rejected_json(p_work wh_work[], p_reports wh_report[])
RETURNS jsonb
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT COALESCE(jsonb_agg(jsonb_build_object(
    'queue', x.queue, 'verb', x.verb, 'place', x.place, 'message_id', x.message_id, 'reason', x.reason)
    ORDER BY x.queue, x.verb, x.place), '[]')
  FROM (
    -- Only a completion can lack a verb: its status ends nothing.
    SELECT r.queue, COALESCE(r.verb, 'complete') AS verb, r.place, r.message_id, r.fault AS reason
    FROM unnest(p_reports) r WHERE r.fault IS NOT NULL
    UNION ALL
    SELECT r.queue, r.verb, r.place, r.message_id,
      'lease lost' || CASE r.verb WHEN 'fail' THEN ', or an earlier message of its stream is not finished' ELSE '' END
    FROM unnest(p_work) w
    JOIN unnest(p_reports) r ON r.queue = w.queue AND r.stream_id = w.stream_id AND r.verb = w.detail AND r.fault IS NULL
    WHERE w.kind = 'rejected'
    UNION ALL
    SELECT w.queue, 'store', w.place, w.message_id, w.detail FROM unnest(p_work) w WHERE w.kind = 'refused'
  ) x;
$$;
