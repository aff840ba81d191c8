"""Deliberate mutations of the protocol. A harness that does not catch one of them proves nothing.

A mutant is a patch of the installed SQL. Its old text must stand in the source exactly once, so that it cannot rot.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import asyncpg


@dataclass(frozen=True, slots=True)
class Patch:
    """One replacement in the source of one function."""

    function: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        if (count := source.count(self.old)) != 1:
            raise StalePatch(f"{self.function}.sql holds {count} times, not once:\n{self.old}")
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A protocol that is wrong in one way, and is called by it."""

    name: str
    patches: tuple[Patch, ...]

    async def install(self, connection: asyncpg.Connection, schema: str = "whippletree") -> None:
        """Replace the functions in this database, for good: use a database that is thrown away."""
        mutated = self.sources()
        async with connection.transaction():
            await connection.execute(f'SET LOCAL search_path = "{schema}", pg_temp')
            for source in mutated.values():
                await connection.execute(source)

    def sources(self) -> dict[str, str]:
        """The functions as the mutant has them. Raises `StalePatch` when a patch does not fit any more."""
        mutated: dict[str, str] = {}
        for patch in self.patches:
            source = mutated.get(patch.function) or _source(patch.function)
            mutated[patch.function] = patch.apply(source)
        return mutated


class StalePatch(Exception):
    """The source that a mutant patches has changed: mend the mutant."""


def _source(function: str) -> str:
    path = resources.files("whippletree").joinpath("sql", "functions", f"{function}.sql")
    return path.read_text(encoding="utf-8")


def _mutant(name: str, function: str, old: str, new: str = "") -> Mutant:
    return Mutant(name, (Patch(function, old, new),))


_LEASE = "s.instance_id = p_instance_id AND s.lease_token = r.lease_token"
_GIVE_BACK = "instance_id = NULL, lease_expiry = NULL, lease_token = NULL, leased_through = NULL"
_STORE = (
    "  IF p_new_outbox_messages || p_new_inbox_messages IS DISTINCT FROM '[]' THEN\n"
    "    RETURN QUERY SELECT * FROM store_all_new_messages(p_new_outbox_messages, p_new_inbox_messages, p_as_of);\n"
    "  END IF;\n"
)

MUTANTS = (
    # Fencing.
    _mutant("complete without the token", "hold_streams", _LEASE, "s.instance_id = p_instance_id"),
    _mutant("complete without the instance", "hold_streams", _LEASE, "s.lease_token = r.lease_token"),
    _mutant("fail without the token", "fail_messages", _LEASE, "s.instance_id = p_instance_id"),
    _mutant("release without the token", "release_messages", _LEASE, "s.instance_id = p_instance_id"),
    _mutant("renew without the token", "renew_leases", _LEASE, "s.instance_id = p_instance_id"),
    _mutant("one token for all leases", "claim_messages", "v_token := nextval('wh_lease_tokens');", "v_token := 1;"),
    _mutant("complete beyond the lease", "hold_streams", " AND r.through <= s.leased_through"),
    _mutant("complete what is complete", "hold_streams", "r.through > s.head_version AND "),
    _mutant("fail what is not the head", "fail_messages", "ELSE s.head_version + 1 END", "ELSE r.version END"),
    _mutant("redrive what is leased", "redrive_stream", " AND s.instance_id IS NULL"),
    _mutant("skip what is leased", "skip_message", "\n      AND NOT is_leased(s.lease_expiry, p_as_of)"),
    # Order.
    _mutant("order by created_at", "claim_messages", "ORDER BY n.version", "ORDER BY n.created_at"),
    _mutant(
        "versions from a sequence",
        "store_messages",
        "number_messages(p_queue, p_stream_ids, p_stream_keys)",
        "ARRAY(SELECT nextval('wh_lease_tokens') FROM unnest(p_message_ids))",
    ),
    _mutant(
        "the next version by looking at the last",
        "number_messages",
        "outbox_version = w.outbox_version + EXCLUDED.outbox_version",
        "outbox_version = EXCLUDED.outbox_version + (SELECT o.outbox_version FROM wh_streams o"
        " WHERE o.stream_id = w.stream_id)",
    ),
    _mutant(
        "the head does not move",
        "move_heads",
        "SET head_version = h.through",
        "SET head_version = s.head_version",
    ),
    _mutant("a failure keeps the run", "fail_messages", f"s.attempts))),\n    {_GIVE_BACK}", "s.attempts)))"),
    _mutant(
        "parked heads are skipped",
        "park_streams",
        "SET ready_at = 'infinity',",
        "SET ready_at = p_as_of, head_version = s.head_version + 1,",
    ),
    _mutant(
        "a message that is not due holds nobody back",
        "pick_streams",
        "ON m.held IS NOT TRUE",
        "ON true",
    ),
    _mutant(
        "a message that is not due is passed over",
        "pick_streams",
        " OVER (ROWS UNBOUNDED PRECEDING) AS held",
        " OVER (PARTITION BY n.version) AS held",
    ),
    _mutant("a suspect does not go alone", "run_length", "p_max_attempts THEN 1 ELSE", "p_max_attempts THEN 100 ELSE"),
    # Leases.
    Mutant(
        "lease at store",
        (
            Patch(
                "activate_streams",
                "head_version, moved_at)",
                "head_version, moved_at, attempts, instance_id, lease_token, leased_through, lease_expiry)",
            ),
            Patch(
                "activate_streams",
                "a.ready_at, a.head_version, p_as_of\n",
                "a.ready_at + interval '5 minutes', a.head_version, p_as_of, 1, gen_random_uuid(),"
                " nextval('wh_lease_tokens'), a.head_version + 1, a.ready_at + interval '5 minutes'\n",
            ),
        ),
    ),
    _mutant("leases never expire", "is_open_to", "p_holder IS NOT NULL OR ", "p_holder IS NULL AND "),
    _mutant("leases do not hold", "is_ready", " AND NOT is_leased(p_lease_expiry, p_as_of)"),
    _mutant("an expired lease stays with the owner", "is_open_to", "p_holder IS NOT NULL OR "),
    _mutant(
        "a renewal forgets the lease",
        "renew_leases",
        "SET lease_expiry = p_as_of + make_interval(secs => p_lease_seconds),\n    ready_at",
        "SET ready_at",
    ),
    _mutant("attempts are not counted at the claim", "lease_streams", "attempts = r.attempts, moved_at", "moved_at"),
    _mutant(
        "a release deletes",
        "release_messages",
        ") h;\n",
        ") h;\n  DELETE FROM wh_messages m WHERE m.stream_id = ANY (p_stream_ids) AND v_places IS NOT NULL;\n",
    ),
    _mutant(
        "eviction frees everybody's leases",
        "free_instances",
        "s.instance_id = ANY (p_instance_ids)",
        "s.instance_id IS NOT NULL",
    ),
    _mutant(
        "eviction leaves the leases",
        "free_instances",
        "SET lease_expiry = least(s.lease_expiry, p_as_of), ready_at = least(s.ready_since, s.lease_expiry, p_as_of)",
        "SET error = s.error",
    ),
    # Locks.
    _mutant(
        "claims wait for each other", "pick_streams", "FOR NO KEY UPDATE OF s SKIP LOCKED", "FOR NO KEY UPDATE OF s"
    ),
    _mutant("claims do not lock", "pick_streams", "    FOR NO KEY UPDATE OF s SKIP LOCKED\n"),
    _mutant("a drained stream is removed at a glance", "remove_drained_streams", "    FOR UPDATE OF s SKIP LOCKED\n"),
    _mutant("an empty stream is removed at a glance", "settle_barren_streams", "    FOR UPDATE SKIP LOCKED\n"),
    _mutant("storing does not keep the workers' row", "activate_streams", " FOR KEY SHARE"),
    _mutant("storing shuts out those who work", "activate_streams", "FOR KEY SHARE", "FOR SHARE"),
    Mutant(
        "storing waits for those who work",
        (
            Patch("activate_streams", "WHERE s.is_there IS NULL", "WHERE true"),
            Patch("activate_streams", "EXIT WHEN v_inserted = cardinality(v_stream_ids)", "EXIT"),
        ),
    ),
    _mutant("storing only asks for the workers' row", "activate_streams", "EXIT WHEN v_stream_ids IS NULL", "EXIT"),
    _mutant("storing one does not keep the workers' row", "store_message", " FOR KEY SHARE"),
    _mutant(
        "storing one only asks for the workers' row",
        "store_message",
        "    IF FOUND THEN\n      RETURN v_version;\n    END IF;\n",
        "    RETURN v_version;\n",
    ),
    _mutant("streams locked as they come", "lock_streams", "\n      ORDER BY 1, 2"),
    _mutant("completions lock as they come", "hold_streams", '  ORDER BY r.queue COLLATE "C", r.stream_id\n'),
    _mutant("renewals lock as they come", "renew_leases", '    ORDER BY r.queue COLLATE "C", r.stream_id\n'),
    _mutant("streams numbered as they come", "number_messages", "ORDER BY m.stream_id\n", "ORDER BY min(m.ordinal)\n"),
    Mutant(
        "report before storing",
        (
            Patch("process_work", _STORE, ""),
            Patch("process_work", "  PERFORM keep_membership(", f"{_STORE}  PERFORM keep_membership("),
        ),
    ),
    # Partitions.
    _mutant(
        "claim from anybody's partition",
        "is_open_to",
        "p_holder IS NOT NULL OR ",
        "p_owners IS NOT NULL OR ",
    ),
    _mutant(
        "a newcomer robs the owner",
        "own_partitions",
        "(p.instance_id IS NULL OR p.instance_id <> ALL (v_members))",
        "p.instance_id IS DISTINCT FROM p_instance_id",
    ),
    _mutant("a busy partition is handed over", "own_partitions", "\n      AND p.partition_number <> ALL (v_busy)"),
    # Deduplication.
    _mutant("a duplicate is stored again", "deduplicate", "ELSE 'duplicate'", "ELSE 'stored'"),
    _mutant(
        "a duplicate takes a version",
        "accept_message",
        "    UPDATE wh_streams SET inbox_version = inbox_version - 1 WHERE stream_id = p_stream_id;\n",
    ),
)
"""Every mutant is killed by a harness named in test_mutants.py."""
