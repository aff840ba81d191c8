"""One instance with a no-op handler: claims, finishes, claims."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.envelope import Queue
from whippletree.message.outcome import MessageCompletion, Outcome
from whippletree.settings import Dsn
from whippletree.store.database import open_pool

LIMIT = 500


@asynccontextmanager
async def instance(dsn: str, **server_settings: str) -> AsyncIterator[WorkCoordinator]:
    """An instance that has joined and owns its partitions."""
    async with open_pool(Dsn(dsn), size=1, server_settings=server_settings) as pool:
        coordinator = WorkCoordinator(pool, ServiceInstance(service_name="benchmark"))
        await coordinator.process_work_batch(WorkReport(limits={Queue.OUTBOX: 0}))
        yield coordinator
        await coordinator.leave()


async def batches(coordinator: WorkCoordinator, *, limit: int = LIMIT) -> AsyncGenerator[int, None]:
    """Work until nothing is left; how many messages each batch brought. What came is finished while the next call is
    under way, as the loop of an instance does it."""
    done: list[Outcome] = []

    def finish() -> None:
        messages = coordinator.read(answer).claimed_outbox_messages
        done.extend(MessageCompletion(message.message_id) for message in messages)

    answer = await coordinator.call(WorkReport(limits={Queue.OUTBOX: limit}))
    while answer.claimed or done:
        outcomes, done = done, []
        yield len(answer.claimed)
        answer = await coordinator.call(WorkReport(outcomes=outcomes, limits={Queue.OUTBOX: limit}), meanwhile=finish)
        if answer.rejected:
            raise AssertionError(answer.rejected[0])


async def drain(coordinator: WorkCoordinator, *, limit: int = LIMIT) -> int:
    """Work until nothing is left; how many messages that were."""
    return sum([brought async for brought in batches(coordinator, limit=limit)])


async def drain_rate(coordinator: WorkCoordinator, *, limit: int = LIMIT) -> float:
    """Messages per second, until nothing is left."""
    began = time.perf_counter()
    finished = await drain(coordinator, limit=limit)
    return finished / (time.perf_counter() - began)
