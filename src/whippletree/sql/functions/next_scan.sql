-- From when on the next claim has to look, in microseconds since 1970: from the oldest that this one found, but at least a
-- little back from when it looked, because work becomes visible when its transaction commits, and not when it is ready.
-- What lies before that was dead, locked, or another's: see docs/decisions/claim-horizon.md.
-- STABLE, as extract() is: see message_fault.
CREATE OR REPLACE FUNCTION next_scan(p_oldest timestamptz, p_as_of timestamptz)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (1000000 * extract(epoch FROM least(p_oldest, p_as_of - interval '100 milliseconds')))::bigint::text;
