"""The operations that sessions are made of, each telling the history what it did once it is committed."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import asyncpg

from tests.proof.interleaving import Effect, Operation
from tests.proof.world import ALICE, BOB, LEASE, STALE, Held, Known, World, tell_claim
from tests.proof.world import claim as claim_rows
from tests.proof.world import report as report_rows
from tests.proof.world import store as store_rows
from tests.scenario import seconds

NAMES = {ALICE: "alice", BOB: "bob"}
_NEVER_HELD = Held(0, (1,), (UUID(int=1),))


def store(*streams: int, never_waits: bool = False) -> Operation:
    """Store a message into each of the streams, in the order given; they count from 1."""

    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        into = numbered(world, streams)
        versions = await store_rows(connection, into, world.now)
        return [stored(world, stream, version) for stream, version in zip(into, versions, strict=True)]

    return Operation("store into " + ", ".join(f"S{number}" for number in streams), call, never_waits)


def insert(stream: int = 1) -> Operation:
    """A plain INSERT, as any client would."""

    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        version: int = await connection.fetchval(
            "INSERT INTO wh_outbox (message_id, stream_id, message_type, payload) VALUES ($1, $2, 'Happened', '{}')"
            " RETURNING version",
            uuid4(),
            world.streams[stream - 1],
        )
        return [stored(world, world.streams[stream - 1], version)]

    return Operation(f"INSERT INTO wh_outbox, S{stream}", call)


def receive() -> Operation:
    """Store a message into the inbox that may have come before: it is stored once."""

    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        before = await connection.fetchval(_RECEIVED, world.received)
        outcome = await connection.fetchval(
            "SELECT (store_inbox($1, '{null}', $2, '{Happened}', '{topic}', '{\"{}\"}', '{null}', '{null}', '{null}',"
            " '{null}', $3))[1]",
            world.streams[:1],
            [world.received],
            world.now,
        )
        assert not before or outcome == "duplicate", f"a message that is in the inbox was {outcome} again"
        assert await connection.fetchval(_RECEIVED, world.received), "a message was received and is not in the inbox"
        return []

    return Operation("receive a message that may have come before", call)


def claim(who: UUID, gets: tuple[int, ...] | None = None) -> Operation:
    """Claim, and when it is said which versions of the first stream are to come, get them."""

    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        got = await claim_rows(connection, world, who, tell=False)
        run = dict(got).get(world.streams[0])
        versions = run.versions if run else ()
        assert gets in (None, versions), f"{NAMES[who]} got versions {versions} and should have got {gets}"
        known.update({(who, stream): held for stream, held in got})
        return [claimed(world, who, stream, held) for stream, held in got]

    return Operation(f"{NAMES[who]} claims", call, never_waits=True)


def complete(who: UUID, *streams: int, first: bool = False, through: int | None = None) -> Operation:
    return _report("complete", who, streams, 0 if first else -1, through)


def complete_for(who: UUID, holder: UUID) -> Operation:
    """Report under a token that is another's."""

    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        stream = world.streams[0]
        held = world.known[holder, stream]
        refused = await report_rows(connection, "complete", who, {stream: held}, held.versions[-1:], world.now)
        return [reported(world, "complete", who, stream, held, held.versions[-1], stream in refused)]

    return Operation(f"{NAMES[who]}: complete S1 under the token of {NAMES[holder]}", call)


def fail(who: UUID, *streams: int, second: bool = False) -> Operation:
    return _report("fail", who, streams, 1 if second else 0)


def park(who: UUID, *streams: int) -> Operation:
    return _report("park", who, streams, 0)


def release(who: UUID, *streams: int, last: bool = False) -> Operation:
    return _report("release", who, streams, -1 if last else None)


def renew(who: UUID, *streams: int) -> Operation:
    return _report("renew", who, streams, None)


def remove_dead_instances(by: UUID) -> Operation:
    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        other = ALICE if by == BOB else BOB
        removed = await connection.fetchval("SELECT remove_dead_instances($1, $2, $3)", by, STALE, world.now)
        return [freed(world, other)] if removed else []

    return Operation(f"{NAMES[by]} removes dead instances", call, never_waits=True)


def own_partitions(who: UUID) -> Operation:
    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        # Taken before we look: what the other hands over while we wait for it is not robbed.
        if not await connection.fetchval("SELECT lock_membership()"):
            return []
        owners = await _owners(connection)
        busy = await connection.fetchval(_BUSY, who, world.now)
        await connection.execute("SELECT own_partitions($1, NULL, $2)", who, world.now)
        now = await _owners(connection)
        robbed = [number for number, owner in now.items() if owner == who and owners[number] not in (who, None)]
        let_go = [number for number, owner in now.items() if owner != who and owners[number] == who and number in busy]
        assert not robbed, f"{NAMES[who]} took partitions {robbed} from an active owner"
        assert not let_go, f"{NAMES[who]} let partitions {let_go} go, where it holds a lease"
        return []

    return Operation(f"{NAMES[who]} settles partitions", call)


def leave(who: UUID) -> Operation:
    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        await connection.execute("SELECT leave($1, $2)", who, world.now)
        return [freed(world, who)]

    return Operation(f"{NAMES[who]} leaves", call)


def redrive(stream: int = 1) -> Operation:
    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        await connection.execute("SELECT redrive_stream('outbox', $1, $2)", world.streams[stream - 1], world.now)
        return []

    return Operation(f"an operator redrives S{stream}", call)


def skip(version: int = 1, stream: int = 1) -> Operation:
    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        it = world.streams[stream - 1]
        skipped = await connection.fetchval("SELECT skip_message('outbox', $1, $2, 'bad', $3)", it, version, world.now)
        return [lambda: world.history.skipped(it, version, world.now)] if skipped else []

    return Operation(f"an operator skips S{stream}:{version}", call)


def _report(
    verb: str, who: UUID, streams: Sequence[int], place: int | None, version_said: int | None = None
) -> Operation:
    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        held = {stream: held_by(world, known, who, stream) for stream in numbered(world, streams or (1,))}
        versions = [
            version_said or (None if place is None else run.versions[min(place, len(run.versions) - 1)])
            for run in held.values()
        ]
        refused = await report_rows(connection, verb, who, held, versions, world.now)
        return [
            reported(world, verb, who, stream, run, version, stream in refused)
            for (stream, run), version in zip(held.items(), versions, strict=True)
        ]

    part = {("complete", 0): " the first of", ("fail", 1): " the second of", ("release", -1): " the last of"}
    what = " and ".join(f"S{number}" for number in streams or (1,))
    return Operation(f"{NAMES[who]}: {verb}{part.get((verb, -2 if place is None else place), '')} {what}", call)


def numbered(world: World, numbers: Sequence[int]) -> list[UUID]:
    return [world.streams[number - 1] for number in numbers]


def held_by(world: World, known: Known, who: UUID, stream: UUID) -> Held:
    return known.get((who, stream)) or world.known.get((who, stream), _NEVER_HELD)


def stored(world: World, stream: UUID, version: int) -> Effect:
    return lambda: world.history.stored(stream, [version])


def claimed(world: World, who: UUID, stream: UUID, held: Held) -> Effect:
    return lambda: tell_claim(world.history, who, stream, held, world.now)


def freed(world: World, who: UUID) -> Effect:
    return lambda: world.history.freed(who, world.now)


def reported(
    world: World, verb: str, who: UUID, stream: UUID, held: Held, version: int | None, refused: bool
) -> Effect:
    def effect() -> None:
        history = world.history
        if refused:
            history.refused("fail" if verb == "park" else verb, who, stream, held.token, version)
        elif verb == "complete":
            assert version is not None
            history.completed(who, stream, held.token, version)
        elif verb in ("fail", "park"):
            history.failed(who, stream, held.token, version)
        elif verb == "release":
            history.released(who, stream, held.token, version)
        else:
            history.renewed(who, stream, held.token, world.now + seconds(LEASE))

    return effect


async def _owners(connection: asyncpg.Connection) -> dict[int, UUID | None]:
    rows = await connection.fetch("SELECT partition_number, instance_id FROM wh_partitions")
    return {row[0]: row[1] for row in rows}


_RECEIVED = "SELECT EXISTS (SELECT FROM wh_messages WHERE message_id = $1 AND queue = 'inbox')"

_BUSY = """
SELECT COALESCE(array_agg(partition_of(stream_hash, partition_count)), '{}') FROM wh_active_streams, wh_settings
WHERE instance_id = $1 AND lease_expiry > $2
"""
