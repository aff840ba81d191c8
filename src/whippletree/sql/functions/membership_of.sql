-- Fingerprint of a membership, for which an instance settles its partitions.
CREATE OR REPLACE FUNCTION membership_of(p_members uuid[])
RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN md5(p_members::text)::uuid;
