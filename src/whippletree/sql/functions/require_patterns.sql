-- Refuses a pattern that could not mean any event type, when it is registered rather than when an event comes.
CREATE OR REPLACE FUNCTION require_patterns(p_patterns text[])
RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  v_pattern text;
BEGIN
  FOREACH v_pattern IN ARRAY p_patterns LOOP
    IF length(v_pattern) > 200 OR v_pattern !~ '^(?:\.\*|[A-Za-z0-9_.+/:-])+$' THEN
      RAISE EXCEPTION '% is not a pattern of event types: use letters, digits, any of _ . + / : -, and .* for anything',
        quote_literal(v_pattern) USING ERRCODE = 'WH004';
    END IF;
  END LOOP;
END;
$$;
