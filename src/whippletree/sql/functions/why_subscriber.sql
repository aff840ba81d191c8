-- How a subscriber stands, in sentences; none when there is no such subscriber.
CREATE OR REPLACE FUNCTION why_subscriber(p_subscriber_name text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT told.sentence
  FROM wh_subscriptions s
  CROSS JOIN LATERAL (VALUES
    (1, format('subscriber %s is at number %s of the feed, %s behind: %s', s.subscriber_name, s.checkpoint, s.behind, s.state)),
    (2, CASE WHEN s.paused THEN 'it is paused; `whippletree subscribers resume` lets it go on' END),
    (3, CASE WHEN s.state = 'parked' THEN format('it is parked at event %s after %s attempts: %s; redrive or skip it',
        s.failed_number, s.attempts, s.error)
      WHEN s.failed_number IS NOT NULL THEN format('event %s failed %s times and is retried in %s: %s', s.failed_number,
        s.attempts, spoken_time(s.retry_at - p_as_of), s.error) END),
    (4, CASE WHEN s.holder IS NULL THEN 'nobody follows it; start one with `whippletree run`'
      ELSE 'it is followed by ' || described_instance(s.holder, p_as_of) END)
  ) AS told(turn, sentence)
  WHERE s.subscriber_name = p_subscriber_name AND told.sentence IS NOT NULL
  ORDER BY told.turn;
$$;
