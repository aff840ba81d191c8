-- Refuses a declared column whose type is none that a row's field can have: the type becomes part of a statement.
CREATE OR REPLACE FUNCTION require_columns(p_columns jsonb)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  v_column record;
BEGIN
  FOR v_column IN SELECT c.key AS name, c.value ->> 'type' AS type FROM jsonb_each(p_columns) c LOOP
    IF (v_column.type = ANY (ARRAY['text', 'boolean', 'bigint', 'double precision', 'numeric', 'uuid', 'timestamptz', 'date']))
      IS NOT TRUE THEN
      RAISE EXCEPTION 'column % has a type that no column can have: %', v_column.name, COALESCE(v_column.type, 'none')
        USING ERRCODE = 'WH004';
    END IF;
  END LOOP;
END;
$$;
