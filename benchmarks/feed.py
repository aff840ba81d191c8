"""Numbering the feed, and following it in transactions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg
import uuid_utils.compat

from benchmarks.backlog import PAYLOAD
from benchmarks.place import Run, connected
from benchmarks.table import Figure, median
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.claim.session import InstanceSession
from whippletree.dispatch.policy import Retry
from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode, Start
from whippletree.message.event import NumberedEvent
from whippletree.settings import Dsn
from whippletree.store.database import open_pool
from whippletree.store.feed import Chosen
from whippletree.store.transaction import Transaction
from whippletree.work.subscription_worker import SubscriptionWorker

BATCH = 1_000


async def measure(run: Run) -> list[Figure]:
    streams = [uuid_utils.compat.uuid7() for _ in range(1_000)]
    async with run.database() as dsn, connected(dsn) as connection:

        async def numbered() -> float:
            count = run.size(100_000, 1_000)
            await append(connection, streams, count)
            began = time.perf_counter()
            await connection.fetchval("SELECT number_events()")
            return count / (time.perf_counter() - began)

        numbering = await median(run.repeat, numbered)
        followed = await median(run.repeat, lambda: _followed(dsn))
        return [
            Figure(name="number the feed, in bulk", value=numbering, unit="events/s", target=50_000),
            Figure(name="follow the feed, 500 events a transaction", value=followed, unit="events/s"),
        ]


async def append(connection: asyncpg.Connection, streams: Sequence[UUID], count: int) -> None:
    nothing = [None] * BATCH
    for first in range(0, count, BATCH):
        await connection.fetchval(
            "SELECT append_events($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            [streams[(first + number) % len(streams)] for number in range(BATCH)],
            nothing,
            [uuid_utils.compat.uuid7() for _ in range(BATCH)],
            ["OrderPlaced"] * BATCH,
            [1] * BATCH,
            [PAYLOAD] * BATCH,
            nothing,
            nothing,
            nothing,
        )


@dataclass
class _Nothing:
    """Has no effects of its own, but a transaction and a checkpoint."""

    name: str
    last: int
    done: asyncio.Event = field(default_factory=asyncio.Event)
    chosen: Chosen = field(default_factory=Chosen)
    start: Start | int = Start.BEGINNING
    mode: InstanceMode = InstanceMode.COORDINATED
    retry: Retry = field(default_factory=Retry)
    checkpoint: CheckpointEvery = field(default_factory=lambda: CheckpointEvery(count=500))
    transactional: bool = True

    async def apply(self, events: Sequence[NumberedEvent], transaction: Transaction | None, attempts: int) -> None:
        if events[-1].number == self.last:
            self.done.set()


async def _followed(dsn: str) -> float:
    async with open_pool(Dsn(dsn)) as pool:
        last = await pool.fetchval("SELECT whippletree.last_number()")
        follower = _Nothing(name=f"nothing:{uuid_utils.compat.uuid7()}", last=last)
        instance = ServiceInstance(service_name="benchmark")
        async with InstanceSession(Dsn(dsn), WorkCoordinator(pool, instance)) as session:
            began = time.perf_counter()
            async with SubscriptionWorker(pool, session, instance.instance_id, [follower]):
                await follower.done.wait()
            return float(last / (time.perf_counter() - began))
