-- Finishes the work of leased streams up to a version, and moves the head. A finished message is deleted (or kept, for
-- debugging); a perspective's checkpoint and a receptor's log are written. A stream with more work is ready at once,
-- behind those that waited; a drained one is removed, unless somebody is storing into it. Each stream is named once.
-- Returns the places of the reports that were refused, because the lease is not the reporter's.
CREATE OR REPLACE FUNCTION complete_messages(
  p_instance_id uuid, p_queues text[], p_stream_ids uuid[], p_lease_tokens bigint[], p_through bigint[],
  p_keep boolean DEFAULT false, p_as_of timestamptz DEFAULT NULL)
RETURNS integer[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_places integer[];
  v_rows tid[];
  v_queues text[];
  v_stream_ids uuid[];
  v_heads bigint[];
  v_through bigint[];
  v_as_of timestamptz;
BEGIN
  IF cardinality(p_stream_ids) = 0 THEN
    RETURN '{}';
  END IF;
  SELECT array_agg(h.place), array_agg(h.row_id), array_agg(h.queue), array_agg(h.stream_id),
    array_agg(h.head_version), array_agg(h.through)
  INTO v_places, v_rows, v_queues, v_stream_ids, v_heads, v_through
  FROM hold_streams(p_instance_id, p_queues, p_stream_ids, p_lease_tokens, p_through) h;
  IF v_places IS NULL THEN
    RETURN ARRAY(SELECT generate_subscripts(p_stream_ids, 1));
  END IF;

  -- Read after the wait for the locks: what is ready since then is not hidden from claims that have looked further.
  v_as_of := COALESCE(p_as_of, clock_timestamp());
  IF p_keep THEN
    PERFORM keep_finished_messages(v_queues, v_stream_ids, v_heads, v_through, v_as_of);
  END IF;
  DELETE FROM wh_messages m
  USING unnest(v_queues, v_stream_ids, v_heads, v_through) AS h(queue, stream_id, head_version, through)
  WHERE m.stream_id = ANY (ARRAY[h.stream_id]) AND m.queue = h.queue AND m.version > h.head_version AND m.version <= h.through;
  IF NOT v_queues <@ ARRAY['outbox', 'inbox'] THEN
    PERFORM save_checkpoints(v_queues, v_stream_ids, v_through, v_as_of);
    PERFORM log_receptors(v_queues, v_stream_ids, v_heads, v_through, p_instance_id, v_as_of);
  END IF;
  IF remove_drained_streams(v_rows, v_through) < cardinality(v_places) THEN
    PERFORM move_heads(v_rows, v_through, v_as_of);
  END IF;
  IF cardinality(v_places) = cardinality(p_stream_ids) THEN
    RETURN '{}';
  END IF;
  RETURN ARRAY(SELECT place FROM generate_subscripts(p_stream_ids, 1) AS place WHERE place <> ALL (v_places));
END;
$$;
