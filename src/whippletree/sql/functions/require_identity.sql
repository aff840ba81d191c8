-- Refuses a caller who does not say who it is.
CREATE OR REPLACE FUNCTION require_identity(
  p_instance_id uuid, p_service_name text, p_host_name text, p_process_id integer)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  v_fault text := CASE
    WHEN p_instance_id IS NULL THEN 'p_instance_id is missing'
    WHEN p_instance_id = '00000000-0000-0000-0000-000000000000' THEN 'p_instance_id is all zeros'
    WHEN COALESCE(p_service_name, '') = '' THEN 'p_service_name is missing'
    WHEN p_host_name IS NULL THEN 'p_host_name is missing'
    WHEN p_process_id IS NULL THEN 'p_process_id is missing'
  END;
BEGIN
  IF v_fault IS NOT NULL THEN
    RAISE EXCEPTION '%: every process says who it is, under an id of its own', v_fault USING ERRCODE = 'WH004';
  END IF;
END;
$$;
