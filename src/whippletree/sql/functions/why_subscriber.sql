-- How a subscriber stands, in sentences; none when there is no such subscriber.
CREATE OR REPLACE FUNCTION why_subscriber(p_subscriber_name text, p_as_of timestamptz DEFAULT clock_timestamp())
RETURNS SETOF text
LANGUAGE sql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
  SELECT told.sentence
  FROM wh_subscriptions s
  JOIN subscriber_overview(p_as_of) o ON o.subscriber_name = s.subscriber_name
  CROSS JOIN LATERAL (VALUES
    (1, format('subscriber %s is at number %s of the feed, %s behind%s: %s', s.subscriber_name, s.checkpoint, o.behind,
      COALESCE(', the first for ' || spoken_time(o.lag * interval '1 second'), ''), s.state)),
    (2, CASE WHEN s.paused THEN format('it is paused; `whippletree subscribers resume %s` lets it go on', s.subscriber_name) END),
    (3, CASE WHEN is_parked(s.retry_at) THEN format('it is parked at event %s after %s: %s; mend the cause, then '
        '`whippletree subscribers redrive %s`; or `whippletree subscribers skip %4$s %1$s --reason …`',
        s.failed_number, spoken_count(s.attempts, 'attempt'), s.error, s.subscriber_name)
      WHEN s.failed_number IS NOT NULL THEN format('event %s failed %s and is retried %s: %s', s.failed_number,
        spoken_count(s.attempts, 'time'), COALESCE('in ' || spoken_time(
          NULLIF(subscriber_held_up(false, s.retry_at, p_as_of), 0) * interval '1 second'), 'now'), s.error) END),
    (4, CASE WHEN s.holder IS NULL AND s.through IS NOT NULL
        THEN 'it is a part of a rebuild, and waits for an instance with room for it'
      WHEN s.holder IS NULL THEN 'nobody follows it; start one with `whippletree run`'
      WHEN s.state = 'lost' THEN 'nobody follows it; its last holder was ' || described_instance(s.holder, p_as_of)
      ELSE 'it is followed by ' || described_instance(s.holder, p_as_of) END)
  ) AS told(turn, sentence)
  WHERE s.subscriber_name = p_subscriber_name AND told.sentence IS NOT NULL
  ORDER BY told.turn;
$$;
