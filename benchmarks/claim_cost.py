"""What a claim of 300 costs while other things wait: many messages, a long blocked stream, many blocked streams.

The databases take turns, so that a disturbance falls on all of them.
"""

from __future__ import annotations

import statistics
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import asyncpg

from benchmarks.backlog import PARKED, fill
from benchmarks.instance import instance
from benchmarks.place import Run, connected, settle
from benchmarks.table import Aim, Figure
from whippletree.claim.batch import WorkBatchFlags, WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.message.envelope import Queue
from whippletree.message.outcome import MessageRelease

CLAIM = 300
READY = 1_000


async def measure(run: Run) -> list[Figure]:
    async with AsyncExitStack() as stack:
        coordinators = {}
        for scene in ("few", "many", "long stream", "many streams"):
            dsn = await stack.enter_async_context(run.database())
            connection = await stack.enter_async_context(connected(dsn))
            await _prepare(connection, scene, run)
            coordinators[scene] = await stack.enter_async_context(instance(dsn))
        times: dict[str, list[float]] = {scene: [] for scene in coordinators}
        for _ in range(run.size(12, 2) * run.repeat):
            for scene, coordinator in coordinators.items():
                times[scene].append(await _claim(coordinator))
    few, many, long_stream, many_streams = (statistics.median(taken) for taken in times.values())
    return [
        Figure(name="claim of 300, 1 thousand pending", value=1000 * few, unit="ms"),
        Figure(name="claim of 300, 1 million pending", value=1000 * many, unit="ms", aim=Aim.UNDER, target=20),
        _ratio("claim, 1 million pending", many / few),
        _ratio("claim, a stream of 1 million blocked", long_stream / few),
        _ratio("claim, 100 thousand streams blocked", many_streams / few),
    ]


async def _prepare(connection: asyncpg.Connection, scene: str, run: Run) -> None:
    match scene:
        case "many":
            await fill(connection, run.size(1_000_000, 2_000))
        case "long stream":
            await fill(connection, 1, run.size(1_000_000, 2_000), ready=PARKED)
        case "many streams":
            await fill(connection, run.size(50_000, 500), 1, ready=PARKED)
            await fill(connection, run.size(50_000, 500), 1, ready=datetime(2100, 1, 1, tzinfo=UTC))
    if scene != "many":
        await fill(connection, READY)
    await settle(connection)


async def _claim(coordinator: WorkCoordinator) -> float:
    began = time.perf_counter()
    batch = await coordinator.process_work_batch(WorkReport(limits={Queue.OUTBOX: CLAIM}))
    taken = time.perf_counter() - began
    if len(batch.claimed_outbox_messages) != CLAIM:
        raise AssertionError(f"claimed {len(batch.claimed_outbox_messages)} of {CLAIM}")
    releases = [MessageRelease(message.message_id) for message in batch.claimed_outbox_messages]
    await coordinator.process_work_batch(WorkReport(outcomes=releases, flags=WorkBatchFlags.SKIP_CLAIM))
    return taken


def _ratio(name: str, value: float) -> Figure:
    return Figure(name=f"{name}, against 1 thousand pending", value=value, unit="times", aim=Aim.AT_MOST, target=1.5)
