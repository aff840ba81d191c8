-- Lets a role run an instance: store, claim, report, append and read events. It touches no table of ours but through
-- functions.
CREATE OR REPLACE FUNCTION grant_worker(p_role name)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM grant_producer(p_role);
  PERFORM grant_functions(p_role, ARRAY['process_work', 'process_work_batch', 'report_work', 'leave',
    'require_partition_count', 'register_perspective', 'register_receptor', 'resolve_event_types', 'read_events', 'forget_messages',
    'deduplication_retention', 'park_deliveries', 'set_aside', 'keep_alive', 'store_due_messages', 'stopped_work',
    -- The rows of perspectives.
    'register_perspective_rows', 'register_perspective_tables', 'enter_generation', 'live_writes', 'feed_rebuilds',
    'sort_events', 'read_sorted', 'live_generation', 'read_perspective_events', 'read_rows', 'write_rows', 'find_rows',
    'row_of', 'lock_for_folding', 'take_over_streams', 'followed_through', 'take_over_follower',
    'keep_from_appends', 'stream_names', 'save_checkpoints', 'unworked_perspectives',
    -- What happened to a call whose answer was lost.
    'end_lost_calls', 'resume_claims', 'finished_messages', 'end_silent_transactions', 'is_heard_of',
    -- The session lock and waking. These act as the caller: they may end its own sessions and nobody else's.
    'take_session_lock', 'holds_session_lock', 'session_lock_key', 'lock_key', 'wake_channel']);
  PERFORM grant_functions(p_role, ARRAY['number_events', 'last_number', 'read_feed', 'register_subscriber',
    'hold_subscriber', 'require_epoch', 'advance_subscriber', 'fail_subscriber', 'record_subscriber',
    'leave_subscriber',
    -- Locks of subscribers, and the end of a former holder's sessions: these too act as the caller.
    'require_read_committed', 'enter_subscriber', 'stand_by', 'take_subscribers', 'release_subscribers',
    'subscriber_lock', 'subscriber_locks', 'subscriber_channel', 'feed_channel']);
END;
$$;
