"""The transports as the suite sees them: one service sends, another one in the schema `receiver` receives."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import nats

from tests.transports.nats_server import NatsServer
from tests.transports.relay import QUICK
from tests.waiting import until
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.dispatch.transport import DeliveringTransport, Transport
from whippletree.errors import TransportUnavailable
from whippletree.transports.in_process import InProcessTransport
from whippletree.transports.nats import NatsTransport
from whippletree.transports.postgres import PostgresTransport
from whippletree.work.inbox_receiver import InboxReceiver

RECEIVER = "receiver"
TOPIC = "orders.placed"

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


class Bus(ABC):
    """A transport, how it goes down, and what runs beside it."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    @abstractmethod
    def transport(self, coordinator: WorkCoordinator) -> Transport: ...

    @abstractmethod
    def receiving(self, **settings: Any) -> AbstractAsyncContextManager[InboxReceiver | None]:
        """The receiver runs while the context is open, if the transport needs one."""

    async def deliver(self, body: bytes) -> None:
        """What somebody else, who knows nothing of us, might put on the bus."""
        raise NotImplementedError

    async def owes_nothing(self) -> bool:
        """Whether everything that was delivered is acknowledged, so that nothing comes again."""
        return True

    @abstractmethod
    def outage(self) -> AbstractAsyncContextManager[None]:
        """The transport is down while the context is open. Nobody may be receiving."""

    @property
    def address(self) -> str:
        return ""


class InProcessBus(Bus):
    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.shared = InProcessTransport(timeout=5)

    def transport(self, coordinator: WorkCoordinator) -> Transport:
        return self.shared

    def receiving(self, **settings: Any) -> AbstractAsyncContextManager[InboxReceiver]:
        return self._receiving(**settings)

    @asynccontextmanager
    async def _receiving(self, **settings: Any) -> AsyncIterator[InboxReceiver]:
        async with run_receiver(self.shared, self.pool, **settings) as receiver:
            await until(self._answers)
            yield receiver

    async def deliver(self, body: bytes) -> None:
        await self.shared._subscriptions[0].put(TOPIC, body)

    async def _answers(self) -> bool:
        with suppress(TransportUnavailable):
            await self.shared.probe()
            return True
        return False

    def outage(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


class PostgresBus(Bus):
    def transport(self, coordinator: WorkCoordinator) -> Transport:
        return PostgresTransport(self.pool, coordinator.report, {TOPIC: [RECEIVER]}, timeout=1)

    def receiving(self, **settings: Any) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute(f"LOCK TABLE {RECEIVER}.wh_messages IN ACCESS EXCLUSIVE MODE")
            yield


class NatsBus(Bus):
    def __init__(self, pool: Pool, server: NatsServer) -> None:
        super().__init__(pool)
        self.server = server
        self.shared = NatsTransport([server.url], timeout=5)

    def transport(self, coordinator: WorkCoordinator) -> Transport:
        return self.shared

    def receiving(self, **settings: Any) -> AbstractAsyncContextManager[InboxReceiver]:
        return run_receiver(self.shared, self.pool, **settings)

    async def deliver(self, body: bytes) -> None:
        client = await nats.connect(self.address)
        await client.jetstream().publish(f"whippletree.{TOPIC}", body)
        await client.close()

    async def owes_nothing(self) -> bool:
        client = await nats.connect(self.address)
        with suppress(nats.js.errors.NotFoundError):
            info = await client.jsm().consumer_info("whippletree", "billing")
            await client.close()
            return bool(info.num_ack_pending == 0 and info.num_pending == 0)
        await client.close()
        return False

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self.server.stop()
        try:
            yield
        finally:
            await self.server.start()

    @property
    def address(self) -> str:
        return self.server.url


@asynccontextmanager
async def open_bus(kind: str, pool: Pool, directory: Path) -> AsyncIterator[Bus]:
    if kind == "in_process":
        yield InProcessBus(pool)
    elif kind == "postgres":
        yield PostgresBus(pool)
    else:
        server = NatsServer(directory)
        await server.start()
        try:
            async with AsyncExitStack() as stack:
                bus = NatsBus(pool, server)
                await stack.enter_async_context(bus.shared)
                yield bus
        finally:
            server.stop()


@asynccontextmanager
async def run_receiver(
    transport: DeliveringTransport, pool: Pool, *, group: str = "billing", **settings: Any
) -> AsyncIterator[InboxReceiver]:
    receiver = InboxReceiver(transport, pool, topics=[TOPIC], group=group, schema=RECEIVER, back_off=QUICK, **settings)
    task = asyncio.create_task(receiver.run())
    try:
        yield receiver
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
