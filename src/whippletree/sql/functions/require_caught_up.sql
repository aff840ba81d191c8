-- Refuses to make a rebuild live while the live rows have events of more than p_behind streams that it does not have, or
-- more than p_behind events for one that follows the feed: readers would see those go back for a moment.
CREATE OR REPLACE FUNCTION require_caught_up(p_known wh_perspectives, p_behind bigint, p_as_of timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_name text := p_known.perspective_name;
  v_queue text := 'perspective/' || v_name || '@' || p_known.building_generation;
  v_behind record;
  v_count bigint;
BEGIN
  IF p_known.key_type = 'text' THEN
    -- However little that is: what each part has is known, what the rows have is not.
    IF EXISTS (SELECT FROM rebuild_parts(v_name, p_known.building_generation)) THEN
      RAISE EXCEPTION 'the rebuild of % is behind the live rows: %', v_name,
        told_parts(v_name, p_known.building_generation) USING ERRCODE = 'WH007';
    END IF;
    v_count := events_behind(v_name, p_behind + 1);
    IF v_count > p_behind THEN
      RAISE EXCEPTION 'the rebuild of % is behind the live rows by % events or more. %', v_name, v_count, (
        SELECT format('It is at number %s of the feed, %s%s', s.checkpoint, s.state,
          COALESCE(', after ' || s.attempts || ' attempts: ' || s.error, ''))
        FROM wh_subscriptions s WHERE s.subscriber_name = v_queue) USING ERRCODE = 'WH007';
    END IF;
    RETURN;
  END IF;
  SELECT count(*) INTO v_count FROM streams_behind(v_name);
  IF v_count > p_behind THEN
    SELECT * INTO v_behind FROM streams_behind(v_name) LIMIT 1;
    RAISE EXCEPTION 'the rebuild of % is behind the live rows in % streams; in % it has version %, they have version %. %',
      v_name, v_count, described_stream(v_behind.stream_id), v_behind.built, v_behind.live,
      COALESCE((SELECT string_agg(why, '; ') FROM why_stream(v_queue, v_behind.stream_id, p_as_of) AS why),
        'It is about to be applied') USING ERRCODE = 'WH007';
  END IF;
END;
$$;
