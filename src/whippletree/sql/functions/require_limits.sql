-- Refuses times and limits that cannot work: a negative stale threshold would evict every other instance. What is compared
-- with NaN or NULL is not true, and so refused.
CREATE OR REPLACE FUNCTION require_limits(
  p_lease_seconds double precision, p_stale_threshold_seconds double precision, p_max_attempts integer,
  p_max_partitions integer, p_limits integer[])
RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  v_fault text := CASE
    WHEN (p_lease_seconds > 0 AND p_lease_seconds < 1e9) IS NOT TRUE
      THEN format('p_lease_seconds is %s; give more than 0 and less than 1000000000', p_lease_seconds)
    WHEN (p_stale_threshold_seconds > 0 AND p_stale_threshold_seconds < 1e9) IS NOT TRUE
      THEN format('p_stale_threshold_seconds is %s; give more than 0 and less than 1000000000', p_stale_threshold_seconds)
    WHEN (p_max_attempts > 0) IS NOT TRUE THEN format('p_max_attempts is %s; give 1 or more', p_max_attempts)
    WHEN p_max_partitions < 0 THEN format('p_max_partitions_per_instance is %s; give none, or 0 or more', p_max_partitions)
    WHEN 0 > ANY (p_limits) THEN 'a limit is negative; 0 takes nothing now'
  END;
BEGIN
  IF v_fault IS NOT NULL THEN
    RAISE EXCEPTION '%', v_fault USING ERRCODE = 'WH004';
  END IF;
END;
$$;
