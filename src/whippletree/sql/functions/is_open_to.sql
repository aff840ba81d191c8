-- Whether a ready stream may be claimed on behalf of these owners (see owners_served; NULL: of everybody): its partition is
-- one of theirs, or it has a holder, whose lease has expired, and is anybody's.
CREATE OR REPLACE FUNCTION is_open_to(p_owners uuid[], p_holder uuid, p_partition_owner uuid)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_holder IS NOT NULL OR (p_owners IS NULL OR p_partition_owner = ANY (p_owners));
