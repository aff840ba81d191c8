-- The UUID that a text spells; NULL for anything else, so that one bad element does not sink a batch. Not STRICT, which
-- would keep PostgreSQL from putting its text in the place of the call.
CREATE OR REPLACE FUNCTION uuid_or_null(p_text text)
RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN is_uuid(p_text) THEN p_text::uuid END;
