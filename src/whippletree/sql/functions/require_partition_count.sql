-- Refuses a caller that believes in another number of partitions: its streams would hash elsewhere.
CREATE OR REPLACE FUNCTION require_partition_count(p_partition_count integer)
RETURNS void
LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  v_partition_count integer := (SELECT partition_count FROM wh_settings);
BEGIN
  IF p_partition_count <> v_partition_count THEN
    RAISE EXCEPTION 'this installation has % partitions, the caller says %', v_partition_count, p_partition_count
      USING ERRCODE = 'WH003', HINT = format('Use %s, or call change_partition_count(%s) once.', v_partition_count,
        p_partition_count);
  END IF;
END;
$$;
