"""Events appended with two perspectives that want them; perspectives catching up and being rebuilt by the worker."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import uuid_utils.compat

from benchmarks.place import Run, connected
from benchmarks.table import Figure, median
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.dispatch.invoke import Providers
from whippletree.dispatch.perspective import Perspective, PerspectiveSettings, define_perspective
from whippletree.dispatch.perspective_folder import PerspectiveFolder
from whippletree.dispatch.perspective_runner import PerspectiveRunner
from whippletree.dispatch.rebuild import Rebuilds
from whippletree.dispatch.rows import register_perspective
from whippletree.message.event import NewEvent
from whippletree.message.type_names import MessageKind, MessageTypes
from whippletree.settings import Dsn
from whippletree.store.database import open_pool
from whippletree.store.event_store import EventStore
from whippletree.work.perspective_options import PerspectiveWorkerOptions
from whippletree.work.perspective_worker import PerspectiveWorker

BATCH = 100


@dataclass(frozen=True)
class OrderPlaced:
    order_id: UUID
    customer: str
    total: int


@dataclass(frozen=True)
class Summary:
    customer: str
    orders: int
    total: int


def summary(row: Summary | None, event: OrderPlaced) -> Summary:
    if row is None:
        return Summary(event.customer, 1, event.total)
    return Summary(row.customer, row.orders + 1, row.total + event.total)


def totals(row: Summary | None, event: OrderPlaced) -> Summary:
    return summary(row, event)


async def measure(run: Run) -> list[Figure]:
    async with run.database() as dsn, connected(dsn) as connection, open_pool(Dsn(dsn)) as pool:
        types = MessageTypes()
        types.register(OrderPlaced, kind=MessageKind.EVENT, stream="order_id")
        folds = [
            define_perspective(fold, PerspectiveSettings(columns=["customer"]), types=types, providers=Providers())
            for fold in (summary, totals)
        ]
        for perspective in folds:
            await register_perspective(perspective, pool)
        streams = run.size(600, 20)
        rates, rebuilt = [], []

        async def catch_up() -> float:
            await _empty(connection)
            rates.append(await _append(pool, types, streams))
            await connection.execute("VACUUM ANALYZE")
            caught_up = await _catch_up(pool, folds, types, streams * BATCH * len(folds))
            await connection.execute("VACUUM ANALYZE")
            rebuilt.append(await _rebuild(pool, folds, types, streams * BATCH * len(folds)))
            return caught_up

        caught_up = await median(run.repeat, catch_up)
        return [
            Figure(
                name="append with two perspectives, batches of 100",
                value=sorted(rates)[len(rates) // 2],
                unit="events/s",
                target=10_000,
            ),
            Figure(name="perspective catch-up, into rows", value=caught_up, unit="events/s", target=20_000),
            Figure(
                name="perspective rebuild, beside the live rows",
                value=sorted(rebuilt)[len(rebuilt) // 2],
                unit="events/s",
                target=20_000,
            ),
        ]


async def _append(pool: asyncpg.Pool[asyncpg.Record], types: MessageTypes, streams: int) -> float:
    store = EventStore(pool)
    placed = types.named("OrderPlaced")
    payloads = [placed.encode(OrderPlaced(UUID(int=total + 1), "Ada Lovelace", total)) for total in range(BATCH)]
    began = time.perf_counter()
    for _ in range(streams):
        events = [NewEvent(event_type=placed.name, payload=payload) for payload in payloads]
        await store.append(uuid_utils.compat.uuid7(), events)
    return streams * BATCH / (time.perf_counter() - began)


async def _catch_up(
    pool: asyncpg.Pool[asyncpg.Record], folds: list[Perspective[Any]], types: MessageTypes, events: int
) -> float:
    options = PerspectiveWorkerOptions()
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="benchmark"), options.for_coordinator())
    runner = PerspectiveRunner(PerspectiveFolder(folds, types), pool, coordinator)
    worker = PerspectiveWorker(runner, coordinator, options)
    worker.on_work_processing_idle.append(worker.end)
    began = time.perf_counter()
    await worker.run()
    took = time.perf_counter() - began
    applied = await pool.fetchval("SELECT sum(version) FROM whippletree.wh_checkpoints")
    if applied != events:
        raise AssertionError(f"{applied} events were applied, not {events}")
    return events / took


async def _rebuild(
    pool: asyncpg.Pool[asyncpg.Record], folds: list[Perspective[Any]], types: MessageTypes, events: int
) -> float:
    rebuilds = Rebuilds(pool)
    began = time.perf_counter()
    for perspective in folds:
        await rebuilds.start(perspective.name)
    await _catch_up(pool, folds, types, 2 * events)
    took = time.perf_counter() - began
    for perspective in folds:
        if any(found.count for found in await rebuilds.compare(perspective.name) if found.kind != "equal"):
            raise AssertionError("the rebuilt rows differ")
        await rebuilds.abandon(perspective.name)
    return events / took


async def _empty(connection: asyncpg.Connection) -> None:
    await connection.execute(
        "TRUNCATE wh_event_store, wh_checkpoints, wh_active_streams, wh_streams, wh_rows_summary_g1, wh_rows_totals_g1"
    )
