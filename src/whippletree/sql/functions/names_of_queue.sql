-- The names under which an instance may have said that it works a queue.
CREATE OR REPLACE FUNCTION names_of_queue(p_queue text)
RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY[split_part(p_queue, '@', 1), split_part(p_queue, '/', 1) || '/*'];
