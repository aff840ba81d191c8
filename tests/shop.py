"""A shop with orders: the events, the perspectives, and the instances that work them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from tests.scenario import S
from tests.waiting import until
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.dispatch.inline import InlinePerspectives
from whippletree.dispatch.invoke import Providers
from whippletree.dispatch.perspective import Perspective, PerspectiveSettings, define_perspective
from whippletree.dispatch.perspective_folder import PerspectiveFolder
from whippletree.dispatch.perspective_runner import PerspectiveRunner
from whippletree.dispatch.rows import Rows, register_perspective
from whippletree.message.event import NewEvent
from whippletree.message.type_names import MessageKind, MessageTypes
from whippletree.store.event_store import EventStore
from whippletree.store.receipt import Receipt
from whippletree.work.perspective_options import PerspectiveWorkerOptions
from whippletree.work.perspective_worker import PerspectiveWorker

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@dataclass(frozen=True)
class OrderPlaced:
    order_id: UUID
    customer: str
    total: int


@dataclass(frozen=True)
class OrderChanged:
    order_id: UUID
    total: int


@dataclass(frozen=True)
class OrderRemoved:
    order_id: UUID


@dataclass(frozen=True)
class Noted:
    order_id: UUID


@dataclass(frozen=True)
class Address:
    city: str


@dataclass(frozen=True)
class Summary:
    customer: str
    total: int
    changes: int = 0
    address: Address | None = None


OrderEvent: TypeAlias = OrderPlaced | OrderChanged | OrderRemoved


def order_summary(row: Summary | None, event: OrderPlaced | OrderChanged | OrderRemoved) -> Summary | None:
    if isinstance(event, OrderPlaced):
        return Summary(event.customer, event.total)
    if isinstance(event, OrderRemoved):
        return None
    if row is None or event.total < 0:
        raise ValueError("a change of nothing")
    return replace(row, total=event.total, changes=row.changes + 1)


class Shop:
    """One program: its types, its perspectives and its event store."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.types = MessageTypes()
        for event_type in (OrderPlaced, OrderChanged, OrderRemoved, Noted):
            self.types.register(event_type, kind=MessageKind.EVENT, stream="order_id")
        self.perspectives: list[Perspective[Any]] = []

    def define(self, function: Callable[..., Any], **settings: Any) -> Perspective[Any]:
        found = define_perspective(
            function, PerspectiveSettings(**settings), types=self.types, providers=Providers(), names=globals()
        )
        self.perspectives.append(found)
        return found

    async def opens(self, function: Callable[..., Any] = order_summary, **settings: Any) -> Rows[Any]:
        """Define a perspective, and register it as a program does when it starts."""
        perspective = self.define(function, **settings)
        await register_perspective(perspective, self.pool)
        return self.rows(perspective)

    def rows(self, perspective: Perspective[Any]) -> Rows[Any]:
        if perspective.row_type is None:
            return None  # type: ignore[return-value]  # nobody reads rows of one that has none
        return Rows(perspective, self.pool)

    @property
    def folder(self) -> PerspectiveFolder:
        return PerspectiveFolder(self.perspectives, self.types)

    @property
    def store(self) -> EventStore:
        return EventStore(self.pool, inline=InlinePerspectives(self.folder))

    async def append(self, stream: UUID | str, *events: Any, on: Any = None) -> Receipt:
        return await self.store.append(stream, [self.event(event) for event in events], on=on)

    async def changes_while(self, perspective: str, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """Change order S forty times, with an instance at work, and do something else again and again until the end."""

        async def change() -> None:
            for total in range(1, 41):
                receipt = await self.append(S, OrderChanged(S, total))
            await receipt.applied(perspective, timeout=60)

        async with self.worker().running():
            changing = asyncio.create_task(change())
            try:
                while not changing.done():
                    await asyncio.wait_for(meanwhile(), 60)
            finally:
                await asyncio.wait_for(changing, 60)

    def event(self, event: Any) -> NewEvent:
        known = self.types.of(event)
        return NewEvent(event_type=known.name, payload=known.encode(event))

    def worker(self, name: str = "shop", *, coordinator: WorkCoordinator | None = None, **options: Any) -> Instance:
        return Instance(self, name, coordinator, options)

    async def catches_up(self, **options: Any) -> None:
        """Run an instance until nothing is left to do."""
        async with self.worker(**options).running() as instance:
            await instance.idle()


class Instance:
    """An instance with a perspective worker, which runs in this process."""

    def __init__(self, shop: Shop, name: str, coordinator: WorkCoordinator | None, options: dict[str, Any]) -> None:
        strategy, readiness = options.pop("completion_strategy", None), options.pop("readiness", None)
        self.options = PerspectiveWorkerOptions(**{"polling_interval_milliseconds": 20, **options})
        self.coordinator = coordinator or WorkCoordinator(
            shop.pool, ServiceInstance(service_name=name), self.options.for_coordinator()
        )
        runner = PerspectiveRunner(shop.folder, shop.pool, self.coordinator)
        self.worker = PerspectiveWorker(
            runner, self.coordinator, self.options, completion_strategy=strategy, readiness=readiness
        )
        self._idle = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Instance]:
        running = asyncio.create_task(self.worker.run())
        try:
            yield self
        finally:
            self.worker.end(grace=10)
            await asyncio.wait_for(running, 30)

    async def idle(self) -> None:
        """Until polls have found nothing for a while: enough here, where nobody appends meanwhile."""
        polls = self.worker.consecutive_empty_polls
        await until(lambda: self.worker.consecutive_empty_polls >= polls + 3)


async def checkpoints(db: asyncpg.Connection, name: str = "order_summary") -> Sequence[tuple[Any, ...]]:
    query = (
        "SELECT status, version, error, parked FROM wh_perspective_checkpoints WHERE perspective_name = $1 ORDER BY 1"
    )
    return [tuple(row) for row in await db.fetch(query, name)]
