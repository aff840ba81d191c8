"""Draining while another session keeps a snapshot open, so that nothing dead can be cleared away.

Two databases take turns, batch by batch, because the machine has moods: in one a million messages have passed since the
snapshot was taken; in the other as many have passed, and nobody holds a snapshot.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import asyncpg

from benchmarks.backlog import fill
from benchmarks.instance import batches, instance
from benchmarks.place import Run, connected
from benchmarks.table import Figure
from whippletree.claim.coordinator import WorkCoordinator

ROUND = 50_000
STREAMS = 1_000


async def measure(run: Run) -> list[Figure]:
    return [
        await _share(run, "1 million messages of 1,000 streams at a time", 1_000_000, alone=False),
        await _share(run, "250 thousand messages without a stream", 250_000, alone=True),
    ]


async def _share(run: Run, what: str, passed: int, *, alone: bool) -> Figure:
    measured = 3 * run.repeat
    # A round is short, and one of a few may be anything: the middle one of those measured begins when so many passed.
    first = run.size(passed // ROUND - measured // 2, 1)
    shares = []
    async with AsyncExitStack() as stack:
        free = await stack.enter_async_context(_place(run))
        held = await stack.enter_async_context(_place(run))
        await stack.enter_async_context(_snapshot(held.dsn))
        for number in range(first + measured):
            times = await _drained((free, held), run.size(ROUND, STREAMS), alone=alone)
            if number >= first:
                shares.append(100 * times[0] / times[1])
    return Figure(
        name=f"drain under an open snapshot after {what}", value=statistics.median(shares), unit="%", target=90
    )


@dataclass(frozen=True, slots=True)
class _Place:
    dsn: str
    connection: asyncpg.Connection
    coordinator: WorkCoordinator

    async def filled(self, messages: int, *, alone: bool) -> AsyncGenerator[int, None]:
        """Put so many messages in; the batches in which they are worked off."""
        if alone:
            await fill(self.connection, messages)
        else:
            await fill(self.connection, STREAMS, messages // STREAMS)
        return batches(self.coordinator)


async def _drained(places: Sequence[_Place], messages: int, *, alone: bool) -> list[float]:
    """The seconds that it takes to drain so many messages, in each place."""
    left = dict(enumerate([await place.filled(messages, alone=alone) for place in places]))
    seconds = [0.0] * len(places)
    drained = [0] * len(places)
    while left:
        for number, turn in list(left.items()):
            began = time.perf_counter()
            brought = await anext(turn, 0)
            seconds[number] += time.perf_counter() - began
            drained[number] += brought
            if not brought:
                del left[number]
    if drained != [messages] * len(places):
        raise AssertionError("other messages were drained than were stored")
    return seconds


@asynccontextmanager
async def _place(run: Run) -> AsyncIterator[_Place]:
    async with run.database() as dsn, connected(dsn) as connection, instance(dsn) as coordinator:
        yield _Place(dsn, connection, coordinator)


@asynccontextmanager
async def _snapshot(dsn: str) -> AsyncIterator[None]:
    async with connected(dsn) as watcher, watcher.transaction(isolation="repeatable_read", readonly=True):
        await watcher.fetchval("SELECT count(*) FROM wh_messages")
        yield
