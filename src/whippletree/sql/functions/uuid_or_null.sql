-- The UUID that a text spells; NULL for anything else, so that one bad element does not sink a batch.
CREATE OR REPLACE FUNCTION uuid_or_null(p_text text)
RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN p_text ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p_text::uuid END;
