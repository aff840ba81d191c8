"""Storing and draining while another session keeps a snapshot open, so that nothing dead can be cleared away.

Two databases take turns: in one a million messages have passed since the snapshot was taken; in the other as many have
passed, and nobody holds a snapshot.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import uuid_utils.compat

from benchmarks.instance import drain, instance
from benchmarks.place import Run, connected
from benchmarks.store import BATCH, store
from benchmarks.table import Figure
from whippletree.claim.coordinator import WorkCoordinator

ROUND = 25_000


async def measure(run: Run) -> list[Figure]:
    streams = [uuid_utils.compat.uuid7() for _ in range(1_000)]
    return [*await _shares(run, "1,000 streams", streams), *await _shares(run, "one message per stream", [None])]


async def _shares(run: Run, shape: str, streams: Sequence[UUID | None]) -> list[Figure]:
    rounds = run.size(1_000_000 // ROUND, 1)
    messages = run.size(ROUND, 100)
    stored, drained = [], []
    async with AsyncExitStack() as stack:
        free = await stack.enter_async_context(_place(run))
        held = await stack.enter_async_context(_place(run))
        await stack.enter_async_context(_snapshot(held.dsn))
        for number in range(rounds + run.size(2, 1) * run.repeat):
            times = [await place.pass_through(messages, streams) for place in (free, held)]
            if number >= rounds:
                stored.append(100 * times[0][0] / times[1][0])
                drained.append(100 * times[0][1] / times[1][1])
    after = f"under an open snapshot after 1 million messages, {shape}"
    return [
        Figure(name=f"drain {after}", value=statistics.median(drained), unit="%", target=90),
        Figure(name=f"store {after}", value=statistics.median(stored), unit="%"),
    ]


@dataclass(frozen=True, slots=True)
class _Place:
    dsn: str
    connection: asyncpg.Connection
    coordinator: WorkCoordinator

    async def pass_through(self, messages: int, streams: Sequence[UUID | None]) -> tuple[float, float]:
        """Store and drain so many messages; the seconds that each took."""
        began = time.perf_counter()
        for first in range(0, messages, BATCH):
            numbers = range(first, min(first + BATCH, messages))
            await store(self.connection, [streams[number % len(streams)] for number in numbers])
        between = time.perf_counter()
        if await drain(self.coordinator) != messages:
            raise AssertionError("other messages were drained than were stored")
        return between - began, time.perf_counter() - between


@asynccontextmanager
async def _place(run: Run) -> AsyncIterator[_Place]:
    async with run.database() as dsn, connected(dsn) as connection, instance(dsn) as coordinator:
        yield _Place(dsn, connection, coordinator)


@asynccontextmanager
async def _snapshot(dsn: str) -> AsyncIterator[None]:
    async with connected(dsn) as watcher, watcher.transaction(isolation="repeatable_read", readonly=True):
        await watcher.fetchval("SELECT count(*) FROM wh_messages")
        yield
