-- Under a snapshot older than its locks a batch could hand out what another one has finished.
CREATE OR REPLACE FUNCTION require_read_committed()
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'work is processed in READ COMMITTED, this transaction is %',
      upper(current_setting('transaction_isolation'))
      USING ERRCODE = 'WH004', HINT = 'Call it in a transaction of its own.';
  END IF;
END;
$$;
