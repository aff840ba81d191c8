-- Seconds until a failed head is tried again, when the caller names no time: doubling to five minutes, with jitter,
-- so that a thousand failures of one outage do not come back in one instant.
CREATE OR REPLACE FUNCTION retry_delay(p_attempts integer)
RETURNS double precision
LANGUAGE sql VOLATILE STRICT
RETURN least(300, 2.0 ^ least(p_attempts - 1, 20)) * (0.5 + random() / 2);
