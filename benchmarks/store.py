"""Storing into the outbox: in large batches, and one by one, each in a transaction of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import uuid_utils.compat

from benchmarks.backlog import PAYLOAD, empty
from benchmarks.place import Run, connected
from benchmarks.table import Figure, median
from whippletree.message.envelope import OutboxMessage
from whippletree.store.outbox import store_outbox

BATCH = 1_000


async def measure(run: Run) -> list[Figure]:
    streams = [uuid_utils.compat.uuid7() for _ in range(1_000)]
    async with run.database() as dsn, connected(dsn) as connection:

        async def batches() -> float:
            await empty(connection)
            count = run.size(60_000, 2_000)
            began = time.perf_counter()
            for first in range(0, count, BATCH):
                await store(connection, [streams[number % len(streams)] for number in range(first, first + BATCH)])
            return count / (time.perf_counter() - began)

        return [
            Figure(
                name="store, batches of 1,000",
                value=await median(run.repeat, batches),
                unit="messages/s",
                target=25_000,
            ),
            Figure(
                name="store one by one, of the bare commit rate",
                value=100 * await _share_of_commits(connection, streams, run),
                unit="%",
                target=70,
            ),
        ]


async def store(connection: asyncpg.Connection, streams: Sequence[UUID | None]) -> None:
    """One new message for each stream named, in one call, as a producer does it."""
    await store_outbox(
        [
            OutboxMessage(message_type="OrderPlaced", topic="orders", payload=PAYLOAD, stream=stream)
            for stream in streams
        ],
        on=connection,
    )


async def _share_of_commits(connection: asyncpg.Connection, streams: Sequence[UUID], run: Run) -> float:
    """In turns, because the disk has moods."""
    await empty(connection)
    await connection.execute("CREATE TABLE bare (id uuid PRIMARY KEY, payload json NOT NULL)")
    shares = []
    for turn in range(run.repeat * 4):
        count = run.size(250, 10)
        began = time.perf_counter()
        for _ in range(count):
            await connection.execute("INSERT INTO bare VALUES ($1, $2)", uuid_utils.compat.uuid7(), PAYLOAD)
        between = time.perf_counter()
        for number in range(count):
            await store(connection, [streams[(turn * count + number) % len(streams)]])
        shares.append((between - began) / (time.perf_counter() - between))
    return statistics.median(shares)
