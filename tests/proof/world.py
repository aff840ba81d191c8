"""The small world in which sessions are interleaved: two instances, two streams, a clock that stands still."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import asyncpg

from tests.proof.invariants import History
from tests.scenario import T0, seconds

LEASE = 30.0
STALE = 5.0
PARTITIONS = 8
ALICE = UUID(int=0xA11CE)
BOB = UUID(int=0xB0B)

_MANY = 50
"""More claims than any drain takes."""


@dataclass(frozen=True, slots=True)
class Held:
    """A run as its holder knows it."""

    token: int
    versions: tuple[int, ...]
    message_ids: tuple[UUID, ...]


Known = dict[tuple[UUID, UUID], Held]
"""What instances know of the runs they got: (instance, stream) to run."""

State = Callable[["World"], Awaitable[None]]


class World:
    """A database, and what is believed about it. `begin` makes the starting state anew, on fresh streams."""

    def __init__(self, db: asyncpg.Connection, state: State) -> None:
        self.db = db
        self.history = History()
        self.known: Known = {}
        self.now = T0
        self.streams: tuple[UUID, ...] = ()
        self.received = uuid4()
        """The id of a message that comes in more than once."""
        self._state = state

    @property
    def names(self) -> dict[UUID, str]:
        return {ALICE: "alice", BOB: "bob"} | {stream: f"S{n}" for n, stream in enumerate(self.streams, 1)}

    async def begin(self) -> None:
        """Alice owns every partition; bob has just joined. The streams lie in his share, and sort as they count."""
        async with self.db.transaction():
            await self._begin()

    async def _begin(self) -> None:
        await self.db.execute(_RESET)
        await self.db.executemany(_JOIN, [(ALICE, T0), (BOB, T0 + seconds(9))])
        await self.db.execute("UPDATE wh_partitions SET instance_id = $1", ALICE)
        self.history = History()
        self.known = {}
        self.now = T0
        self.received = uuid4()
        # Bob's id is the smaller one, so that his share are the even partitions.
        self.streams = tuple(sorted(row[0] for row in await self.db.fetch(_TWO_STREAMS, PARTITIONS)))
        await self._state(self)
        self.now = max(self.now, T0 + seconds(10))

    async def drain(self) -> list[str]:
        """Let the survivors poll, then handle everything that is left. What could not be is returned."""
        self.now += timedelta(days=1)
        async with self.db.transaction():
            members = [row[0] for row in await self.db.fetch("SELECT instance_id FROM wh_service_instances ORDER BY 1")]
            if not members:
                members = [BOB]
                await self.db.execute(_JOIN, BOB, self.now)
                await self.db.execute("UPDATE wh_partitions SET instance_id = $1", BOB)
            for member in members * 2:
                await self.db.execute("SELECT own_partitions($1, NULL, $2)", member, self.now)
            await self.db.execute("SELECT redrive_stream(queue, stream_id, $1) FROM wh_active_streams", self.now)
            wrong = [words for member in members for words in await self._handle_all(member)]
            row = await self.db.fetchrow(_LEFT, members)
            assert row is not None
        if row["messages"] or row["streams"]:
            wrong.append(f"nobody can claim {row['messages']} messages of {row['streams']} streams")
        if row["partitions"]:
            wrong.append(f"{row['partitions']} partitions have no live owner")
        return wrong + self.history.unhandled()

    async def _handle_all(self, who: UUID) -> list[str]:
        for _ in range(_MANY):
            got = await claim(self.db, self, who)
            if not got:
                return []
            for stream, held in got:
                if await report(self.db, "complete", who, {stream: held}, held.versions[-1:], self.now):
                    return [f"{who} could not complete versions {held.versions} of {stream}"]
                self.history.completed(who, stream, held.token, held.versions[-1])
        return [f"{who} gets work for ever"]


async def claim(
    connection: asyncpg.Connection,
    world: World,
    who: UUID,
    limit: int = 100,
    run_limit: int = 100,
    *,
    tell: bool = True,
) -> list[tuple[UUID, Held]]:
    rows = await connection.fetch(
        "SELECT stream_id, version, message_id, lease_token FROM claim_messages($1, 'outbox', $2, $3, $4, 1000000, 10,"
        " '-infinity', $5)",
        who,
        limit,
        LEASE,
        run_limit,
        world.now,
    )
    runs: dict[tuple[UUID, int], list[asyncpg.Record]] = {}
    for row in rows:
        runs.setdefault((row[0], row[3]), []).append(row)
    got = [(s, Held(t, tuple(r[1] for r in run), tuple(r[2] for r in run))) for (s, t), run in runs.items()]
    if tell:
        for stream, held in got:
            tell_claim(world.history, who, stream, held, world.now)
    return got


def tell_claim(history: History, who: UUID, stream: UUID, held: Held, as_of: datetime) -> None:
    history.claimed(who, stream, held.versions, held.token, as_of=as_of, expiry=as_of + seconds(LEASE))


async def report(
    connection: asyncpg.Connection,
    verb: str,
    who: UUID,
    held: dict[UUID, Held],
    versions: Sequence[int | None],
    as_of: datetime,
) -> set[UUID]:
    """Complete through, fail at, or release from a version of each stream; or renew. Returns what was refused."""
    streams = list(held)
    arguments = [who, streams, [run.token for run in held.values()], list(versions), as_of]
    if verb == "renew":
        del arguments[3]
    refused: list[int] = await connection.fetchval(_REPORTS[verb].format(queues=["outbox"] * len(held)), *arguments)
    return {streams[place - 1] for place in refused}


async def store(connection: asyncpg.Connection, streams: Sequence[UUID], as_of: datetime) -> list[int]:
    count = len(streams)
    nothing = [None] * count
    versions: list[int] = await connection.fetchval(
        "SELECT store_messages('outbox', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        list(streams),
        nothing,
        [uuid4() for _ in streams],
        ["Happened"] * count,
        ["topic"] * count,
        ["{}"] * count,
        nothing,
        nothing,
        nothing,
        nothing,
        as_of,
    )
    return versions


_REPORTS = {
    "complete": "SELECT complete_messages($1, ARRAY{queues}, $2, $3, $4, false, $5)",
    "fail": "SELECT fail_messages($1, ARRAY{queues}, $2, $3, $4, '{{boom}}', '{{3}}', '{{retry}}', 10, $5)",
    "park": "SELECT fail_messages($1, ARRAY{queues}, $2, $3, $4, '{{boom}}', '{{3}}', '{{park}}', 10, $5)",
    "release": "SELECT release_messages($1, ARRAY{queues}, $2, $3, $4, $5)",
    "renew": "SELECT renew_leases($1, ARRAY{queues}, $2, $3, 30, $4)",
}

_JOIN = """
INSERT INTO wh_service_instances
  (instance_id, service_name, host_name, process_id, started_at, last_heartbeat_at, queues)
VALUES ($1, 'test', 'test', 1, $2, $2, '{outbox,inbox}')
"""

_LEFT = """
SELECT (SELECT count(*) FROM wh_messages WHERE queue = 'outbox') AS messages,
  (SELECT count(*) FROM wh_active_streams WHERE queue = 'outbox') AS streams,
  (SELECT count(*) FROM wh_partitions WHERE instance_id IS NULL OR instance_id <> ALL ($1)) AS partitions
"""

_TWO_STREAMS = """
SELECT s FROM (SELECT gen_random_uuid() AS s FROM generate_series(1, 1000) OFFSET 0) candidates
WHERE partition_of(stream_hash(s), $1) % 2 = 0 LIMIT 2
"""

_RESET = """
DELETE FROM wh_service_instances;
DELETE FROM wh_evicted_instances;
DELETE FROM wh_messages;
DELETE FROM wh_active_streams;
"""
