"""Storing into the outbox: in large batches, and one by one, each in a transaction of its own."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from uuid import UUID

import asyncpg
import uuid_utils.compat

from benchmarks.backlog import PAYLOAD, empty
from benchmarks.place import Run, connected
from benchmarks.table import Figure, median
from whippletree.app import App
from whippletree.message.envelope import OutboxMessage
from whippletree.store.outbox import store_outbox

BATCH = 1_000

_BARE = """
    CREATE TABLE bare (id uuid PRIMARY KEY, payload json NOT NULL);
    CREATE TABLE alone (LIKE wh_messages INCLUDING ALL);
    CREATE FUNCTION insert_alone(p_id uuid, p_payload json) RETURNS bigint LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO alone (queue, stream_id, version, message_id, message_type, topic, payload, created_at)
      VALUES ('outbox', p_id, 1, p_id, 'OrderPlaced', 'orders', p_payload, clock_timestamp());
      RETURN 1;
    END $$
"""
_IDLE = "INSERT INTO wh_streams (stream_id, outbox_version) SELECT unnest($1::uuid[]), 1"
_TURN = 25
_COMMIT = "bare commit"
_INSERT = "INSERT INTO bare VALUES ($1, $2)"
_ALONE = "SELECT insert_alone($1, $2)"


@dataclass(frozen=True)
class PlaceOrder:
    customer: str
    total: int


@dataclass(frozen=True)
class OrderPlaced:
    customer: str
    total: int


async def measure(run: Run) -> list[Figure]:
    streams = [uuid_utils.compat.uuid7() for _ in range(1_000)]
    async with run.database() as dsn, connected(dsn) as connection:

        async def batches() -> float:
            await empty(connection)
            messages = run.size(60_000, 2_000)
            began = time.perf_counter()
            for first in range(0, messages, BATCH):
                await store(connection, [streams[number % len(streams)] for number in range(first, first + BATCH)])
            return messages / (time.perf_counter() - began)

        one_by_one = await _shares_of_commits(connection, streams, run)
        return [
            Figure(
                name="store, batches of 1,000",
                value=await median(run.repeat, batches),
                unit="messages/s",
                target=25_000,
            ),
            *one_by_one,
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


async def _shares_of_commits(connection: asyncpg.Connection, streams: Sequence[UUID], run: Run) -> list[Figure]:
    """One by one, beside bare commits, in turns, because the disk has moods: by a function that inserts a message and
    knows no rule; into streams in which something waits; the first message of a stream; and into streams that have been
    worked off. And as an application does it: a command that is handled here, and an event."""
    turns = run.repeat * run.size(40, 4)
    await empty(connection)
    await connection.execute(_BARE)
    await store(connection, streams)
    idle = [uuid_utils.compat.uuid7() for _ in range(turns * _TURN)]
    await connection.execute(_IDLE, idle)
    numbers, worked_off, app = count(), iter(idle), _application()
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        _COMMIT: lambda: connection.execute(_INSERT, uuid_utils.compat.uuid7(), PAYLOAD),
        "a function that only inserts": lambda: connection.fetchval(_ALONE, uuid_utils.compat.uuid7(), PAYLOAD),
        "store one by one": lambda: store(connection, [streams[next(numbers) % len(streams)]]),
        "store one by one, each the first of its stream": lambda: store(connection, [uuid_utils.compat.uuid7()]),
        "store one by one, into idle streams": lambda: store(connection, [next(worked_off)]),
        "publish one by one, a command": lambda: app.publish(PlaceOrder(f"C-{next(numbers) % 100}", 1), on=connection),
        "publish one by one, an event": lambda: app.publish(OrderPlaced(f"C-{next(numbers) % 100}", 1), on=connection),
    }
    shares: dict[str, list[float]] = {way: [] for way in ways if way != _COMMIT}
    for _ in range(turns):
        # In another order each time: what comes after a long one is not as fast as what comes after a short one.
        took = {way: await _seconds(ways[way]) for way in random.sample(list(ways), len(ways))}
        for way, share in shares.items():
            share.append(100 * took[_COMMIT] / took[way])
    return [
        Figure(
            name=f"{way}, of the bare commit rate",
            value=statistics.median(share),
            unit="%",
            target=70 if way.startswith("store") else None,
        )
        for way, share in shares.items()
    ]


def _application() -> App:
    app = App("benchmark")
    app.command(stream="customer")(PlaceOrder)
    app.event(stream="customer")(OrderPlaced)

    @app.receptor
    async def place(command: PlaceOrder) -> None:
        """Only makes the command one that is handled here."""

    return app


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    for _ in range(_TURN):
        await call()
    return time.perf_counter() - began
