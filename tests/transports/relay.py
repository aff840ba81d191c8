"""A relay as an instance runs it: one coordinator, one worker, and the loop that claims for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg

from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.dispatch.transport import Transport
from whippletree.work.loop import LoopSettings, WorkLoop
from whippletree.work.outage import BackOff
from whippletree.work.outbox_worker import OutboxWorker

QUICK = BackOff(first_pause=0.05, longest_pause=0.2)


def coordinator_of(pool: asyncpg.Pool[asyncpg.Record]) -> WorkCoordinator:
    return WorkCoordinator(pool, ServiceInstance(service_name="sender"))


@asynccontextmanager
async def relaying(
    pool: asyncpg.Pool[asyncpg.Record], make: Callable[[WorkCoordinator], Transport], *, batch_size: int = 200
) -> AsyncIterator[OutboxWorker]:
    """Publishes while the context is open."""
    coordinator = coordinator_of(pool)
    worker = OutboxWorker(make(coordinator), batch_size=batch_size, back_off=QUICK)
    loop = WorkLoop(coordinator, [worker], LoopSettings(polling_interval=0.05))
    running = asyncio.create_task(loop.run())
    try:
        yield worker
    finally:
        loop.stop(10)
        await running
