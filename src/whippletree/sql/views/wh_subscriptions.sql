-- Every subscriber, with its true state: a holder whose lock is gone, or itself where it needs none, is lost, whatever it
-- said last.
CREATE OR REPLACE VIEW wh_subscriptions AS
SELECT s.subscriber_name, s.checkpoint,
  COALESCE(s.through, (SELECT COALESCE(max(n.number), 0) FROM wh_event_sequence n)) - s.checkpoint AS behind,
  CASE WHEN s.holder IS NOT NULL AND s.state <> 'parked' AND NOT CASE WHEN s.coordinated
      THEN EXISTS (SELECT FROM subscriber_locks(ARRAY[s.subscriber_name], 0) l WHERE l.holds)
      ELSE EXISTS (SELECT FROM wh_service_instances i WHERE i.instance_id = s.holder AND NOT is_gone(i, clock_timestamp())) END
    THEN 'lost' ELSE s.state END AS state,
  s.holder, s.epoch, s.paused, s.attempts, s.failed_number, s.error, s.retry_at, s.updated_at, s.through
FROM wh_subscribers s;
