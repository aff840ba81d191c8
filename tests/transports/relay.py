"""A relay as an instance runs it: one coordinator, one worker, and a loop that claims for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg

from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.dispatch.transport import Transport
from whippletree.work.outage import BackOff
from whippletree.work.outbox_worker import OutboxWorker

QUICK = BackOff(first_pause=0.05, longest_pause=0.2)


def coordinator_of(pool: asyncpg.Pool[asyncpg.Record]) -> WorkCoordinator:
    return WorkCoordinator(pool, ServiceInstance(service_name="sender"))


@asynccontextmanager
async def relaying(
    pool: asyncpg.Pool[asyncpg.Record], make: Callable[[WorkCoordinator], Transport], *, capacity: int = 200
) -> AsyncIterator[OutboxWorker]:
    """Publishes while the context is open."""
    coordinator = coordinator_of(pool)
    worker = OutboxWorker(make(coordinator), capacity=capacity, back_off=QUICK)
    loop = asyncio.create_task(work(coordinator, worker))
    try:
        yield worker
    finally:
        await worker.stop(10)
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop
        await coordinator.process_work_batch(WorkReport(outcomes=worker.outcomes(), limits={"outbox": 0}))
        await coordinator.leave()


async def work(coordinator: WorkCoordinator, worker: OutboxWorker) -> None:
    changed = asyncio.Event()
    worker.start(changed.set)
    while True:
        changed.clear()
        report = WorkReport(outcomes=worker.outcomes(), limits=worker.wants())
        batch = await asyncio.shield(asyncio.ensure_future(coordinator.process_work_batch(report)))
        worker.lost(batch.rejected)
        worker.take(batch)
        if batch.empty:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await changed.wait()
