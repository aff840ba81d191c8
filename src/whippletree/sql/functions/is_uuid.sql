-- Whether a text spells a UUID, in the one form in which we write them. In three steps, the first of which most other texts
-- do not take: an expression that counts is several times slower.
CREATE OR REPLACE FUNCTION is_uuid(p_text text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_text LIKE '________-____-____-____-____________' AND p_text ~ '^[0-9a-fA-F-]+$'
  AND length(replace(p_text, '-', '')) = 32;
