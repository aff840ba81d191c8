-- The name under which the checkpoints of a generation of a perspective are kept.
CREATE OR REPLACE FUNCTION checkpoint_name(p_perspective_name text, p_generation integer)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_generation > 1 THEN p_perspective_name || '@' || p_generation ELSE p_perspective_name END;
