-- Whether a pattern means an event type. .* stands for anything; a pattern begins at a name boundary: OrderCreated and
-- .*OrderCreated.* mean MyApp.Events.OrderCreated, and not ReorderCreated.
CREATE OR REPLACE FUNCTION type_matches(p_pattern text, p_event_type text)
RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN p_event_type ~ ('^(?:.*[.+/:])?' || replace(regexp_replace(
  replace(regexp_replace(p_pattern, '^(\.\*)+(?=.)', ''), '.*', '*'), '([.+/:-])', '\\\1', 'g'), '*', '.*') || '$');
