-- What tells a copy of a message from another one under the same id: half of the sha256 of type and payload.
-- STABLE, as convert_to() is: see message_fault.
CREATE OR REPLACE FUNCTION body_hash(p_message_type text, p_payload text)
RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN left(encode(sha256(convert_to(p_message_type || E'\n' || p_payload, 'UTF8')), 'hex'), 32)::uuid;
