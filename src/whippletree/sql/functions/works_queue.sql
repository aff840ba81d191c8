-- Whether an instance that works the named queues works this one. It may have named it, or every one of its kind; whoever
-- works a perspective also works its rebuild.
CREATE OR REPLACE FUNCTION works_queue(p_queues text[], p_queue text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_queues && ARRAY[split_part(p_queue, '@', 1), split_part(p_queue, '/', 1) || '/*'];
