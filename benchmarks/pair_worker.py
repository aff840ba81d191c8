"""One instance of `pair` in a process of its own: joins, says "ready", waits for a line, works, says how much."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from uuid import UUID

from benchmarks.instance import LIMIT, drain, instance
from benchmarks.loop import run
from benchmarks.place import connected
from benchmarks.store import store
from whippletree.claim.batch import WorkBatchFlags, WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.message.envelope import Queue
from whippletree.message.ids import MessageId
from whippletree.message.outcome import MessageCompletion, MessageFailure, MessageRelease, Outcome

STREAMS = [UUID(int=number) for number in range(1, 1_001)]


async def main(dsn: str, task: str, members: int, seconds: float) -> None:
    async with instance(dsn) as coordinator:
        await _settled(coordinator, members)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.perf_counter()
        finished = await (drain(coordinator) if task == "drain" else _everything(dsn, coordinator, seconds))
        print(finished, time.perf_counter() - began, flush=True)


async def _settled(coordinator: WorkCoordinator, members: int) -> None:
    """Until the partitions are shared out among the members."""
    while True:
        batch = await coordinator.process_work_batch(WorkReport(limits={Queue.OUTBOX: 0}))
        if abs(len(batch.assigned_partitions) - 10_000 // members) <= 1:
            return
        await asyncio.sleep(0.02)


async def _everything(dsn: str, coordinator: WorkCoordinator, seconds: float) -> int:
    """Store, claim, complete, fail, release and renew, in one mill, on streams that the others use too."""
    finished = 0
    outcomes: list[Outcome] = []
    until = time.monotonic() + seconds
    async with connected(dsn) as connection:
        while time.monotonic() < until:
            await store(connection, random.choices(STREAMS, k=LIMIT))
            batch = await coordinator.process_work_batch(WorkReport(outcomes=outcomes, limits={Queue.OUTBOX: LIMIT}))
            ids = [message.message_id for message in batch.claimed_outbox_messages]
            await coordinator.process_work_batch(WorkReport(renewals=ids, flags=WorkBatchFlags.SKIP_CLAIM))
            outcomes = [_outcome(message.message_id, message.attempts) for message in batch.claimed_outbox_messages]
            finished += len(outcomes)
    return finished


def _outcome(message_id: MessageId, attempts: int) -> Outcome:
    chance = random.random()
    if chance < 0.01 and attempts < 5:
        return MessageFailure(message_id, "now and then", retry_seconds=0)
    return MessageRelease(message_id) if chance < 0.02 else MessageCompletion(message_id)


if __name__ == "__main__":
    address, work, count, *time_given = sys.argv[1:]
    run(main(address, work, int(count), float(*time_given)))
