"""From the outbox to where a message is confirmed: NATS JetStream, and the inbox of another service; and back in."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import asyncpg

from benchmarks.backlog import PAYLOAD, empty, fill
from benchmarks.place import SCHEMA, Run, connected, settle
from benchmarks.table import Figure, median
from tests.transports.mail import claim
from tests.transports.nats_server import NatsServer
from tests.transports.relay import coordinator_of, relaying
from tests.waiting import until
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.dispatch.transport import PublishResult, Transport
from whippletree.settings import Dsn
from whippletree.store.database import open_pool
from whippletree.store.schema import migrate
from whippletree.telemetry import Counters
from whippletree.transports.nats import NatsTransport
from whippletree.transports.nats_link import NatsLink, answer_of
from whippletree.transports.postgres import PostgresTransport
from whippletree.work.inbox_receiver import InboxReceiver

BATCH = 1000
RECEIVER = "receiver"
_LIMIT = 600
_TABLES = """
    DROP TABLE IF EXISTS bare_from, bare_to;
    CREATE TABLE bare_from (id bigint PRIMARY KEY, payload json NOT NULL);
    CREATE TABLE bare_to (LIKE bare_from INCLUDING ALL)
"""
_MOVE = """
    WITH moved AS (DELETE FROM bare_from WHERE id > $1 AND id <= $2 RETURNING *) INSERT INTO bare_to SELECT * FROM moved
"""

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


async def measure(run: Run) -> list[Figure]:
    messages = run.size(40_000, 2 * BATCH)
    with tempfile.TemporaryDirectory(prefix="whippletree-nats-") as directory:
        server = NatsServer(Path(directory))
        await server.start()
        try:
            async with run.database() as dsn, connected(dsn) as connection, open_pool(Dsn(dsn), size=4) as pool:
                await migrate(connection, RECEIVER)
                bench = _Bench(connection, pool, messages)
                return await bench.nats(run, server.url) + await bench.postgres(run)
        finally:
            server.stop()


class _Bench:
    def __init__(self, connection: asyncpg.Connection, pool: Pool, messages: int) -> None:
        self._connection = connection
        self._pool = pool
        self._messages = messages

    async def nats(self, run: Run, url: str) -> list[Figure]:
        async with NatsTransport([url]) as transport:
            await transport.probe()
            return [
                await _figure("bare NATS, atomic batches of 1,000", run, lambda: self._bare(url)),
                await _figure(
                    "publish_batch to NATS, batches of 1,000", run, lambda: self._published(transport), target=21_000
                ),
                await _figure("relay, outbox → NATS confirmed", run, lambda: self._relayed(lambda _: transport)),
                await _figure("receiver, NATS → inbox", run, lambda: self._received(transport)),
            ]

    async def postgres(self, run: Run) -> list[Figure]:
        def to_receiver(coordinator: WorkCoordinator) -> Transport:
            return PostgresTransport(self._pool, coordinator.report, {"orders": [RECEIVER]})

        return [
            await _figure("bare move between two tables, batches of 1,000", run, self._moved),
            await _figure("relay, outbox → inbox in one database", run, lambda: self._relayed(to_receiver)),
        ]

    async def _bare(self, url: str) -> float:
        """The lines of the protocol, made beforehand, and one confirmation a batch."""
        link = NatsLink([url], timeout=30, options={})
        client = await link.open()
        body = PAYLOAD.encode().ljust(400)
        batches = {uuid4().hex: b"" for _ in range(0, self._messages, BATCH)}
        for batch_id in batches:
            for number in range(1, BATCH):
                head = (
                    f"NATS/1.0\r\nNats-Msg-Id: {uuid4()}\r\nNats-Batch-Id: {batch_id}\r\nNats-Batch-Sequence: {number}"
                )
                size = f"HPUB whippletree.bare {len(head) + 4} {len(head) + 4 + len(body)}"
                batches[batch_id] += f"{size}\r\n{head}\r\n\r\n".encode() + body + b"\r\n"
        async with self._timed() as rate:
            for batch_id, frames in batches.items():
                await client.send(frames)
                last = {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(BATCH), "Nats-Batch-Commit": "1"}
                answer_of((await client.request("whippletree.bare", body, timeout=30, headers=last)).data)
        await link.close()
        return rate()

    async def _published(self, transport: NatsTransport) -> float:
        await self._fill()
        coordinator = coordinator_of(self._pool)
        claimed = [await claim(coordinator, BATCH) for _ in range(0, self._messages, BATCH)]
        async with self._timed() as rate:
            for messages in claimed:
                outcomes = await transport.publish_batch(messages)
                assert {outcome.result for outcome in outcomes} == {PublishResult.PUBLISHED}
        await coordinator.leave()
        return rate()

    async def _relayed(self, make: Callable[[WorkCoordinator], Transport]) -> float:
        await self._fill()
        async with self._timed() as rate, relaying(self._pool, make, batch_size=BATCH) as relay:
            await until(lambda: relay.counters.outbox_published >= self._messages, seconds=_LIMIT)
        return rate()

    async def _received(self, transport: NatsTransport) -> float:
        """A service that is new to the bus: everything that was published before comes in."""
        await self._empty()
        counters = Counters()
        receiver = InboxReceiver(
            transport, self._pool, topics=["orders"], group=uuid4().hex, schema=RECEIVER, counters=counters
        )
        async with self._timed() as rate:
            task = asyncio.create_task(receiver.run())
            await until(lambda: counters.deliveries_stored >= self._messages, seconds=_LIMIT)
        task.cancel()
        await asyncio.wait([task])
        return rate()

    async def _moved(self) -> float:
        await self._connection.execute(_TABLES)
        await self._connection.execute(
            "INSERT INTO bare_from SELECT n, $2::text::json FROM generate_series(1, $1::integer) n",
            self._messages,
            PAYLOAD,
        )
        await settle(self._connection)
        async with self._timed() as rate:
            for first in range(0, self._messages, BATCH):
                await self._connection.execute(_MOVE, first, first + BATCH)
        return rate()

    async def _fill(self) -> None:
        """So many messages of 1,000 streams."""
        await self._empty()
        await fill(self._connection, BATCH, self._messages // BATCH)
        await settle(self._connection)

    async def _empty(self) -> None:
        for schema in (RECEIVER, SCHEMA):
            await self._connection.execute(f"SET search_path TO {schema}")
            await empty(self._connection)
            await self._connection.execute("TRUNCATE wh_message_deduplication")

    @asynccontextmanager
    async def _timed(self) -> AsyncIterator[Callable[[], float]]:
        """Messages per second, once the context is left."""
        began = time.perf_counter()
        seconds = 0.0
        yield lambda: self._messages / seconds
        seconds = time.perf_counter() - began


async def _figure(name: str, run: Run, rate: Callable[[], Awaitable[float]], *, target: int | None = None) -> Figure:
    return Figure(name=name, value=await median(run.repeat, rate), unit="messages/s", target=target)
