"""A restart of the database, under two running instances and a publisher that keeps trying.

The server is stopped at once, as by a power cut, and started again after a while. Nobody helps. In the end every order
that was committed has its effects once and in order: of receptors, perspectives, and a coordinated subscriber.

    python -m tests.proof.restart --seconds 30

It is down for that long at least, and until everybody has tried to reach it in vain several times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

import whippletree as wt
from tests.waiting import until
from whippletree.claim.coordinator import CoordinatorSettings
from whippletree.service import Service, ServiceSettings
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.schema import migrate

STREAMS = 5
IN_VAIN = 3
"""So often everybody has tried to reach the server before it is started again."""
PATIENCE = 180
_SERVER_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "60"}
_TABLES = """
CREATE TABLE sent (number integer PRIMARY KEY);
CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, who text, stream text, number integer)
"""
_EFFECT = "INSERT INTO effects (who, stream, number) VALUES ($1, $2, $3)"


@dataclass(frozen=True)
class Reserve:
    order: str
    number: int


@dataclass(frozen=True)
class Reserved:
    order: str
    number: int


@dataclass(frozen=True)
class Numbers:
    numbers: list[int]


def of_order(row: Numbers | None, event: Reserved) -> Numbers:
    return Numbers([*(row.numbers if row else ()), event.number])


def of_all(row: Numbers | None, event: Reserved) -> Numbers:
    return Numbers([*(row.numbers if row else ()), event.number])


def new_app(dsn: str) -> wt.App:
    app = wt.App("shop", dsn=dsn)
    app.command(stream="order")(Reserve)
    app.event(stream="order")(Reserved)

    @app.receptor
    async def reserve(command: Reserve, tx: wt.Transaction) -> Reserved:
        await tx.execute(_EFFECT, "reserve", command.order, command.number)
        return Reserved(command.order, command.number)

    @app.receptor
    async def confirm(event: Reserved, tx: wt.Transaction) -> None:
        await tx.execute(_EFFECT, "confirm", event.order, event.number)

    @app.subscriber("keeper", mode=wt.InstanceMode.COORDINATED)
    async def keep(event: Reserved, tx: wt.Transaction) -> None:
        await tx.execute(_EFFECT, "keeper", event.order, event.number)

    app.perspective(of_order)
    app.perspective(key=lambda event: "all")(of_all)
    return app


@dataclass
class Publisher:
    """Publishes one order after the other, each in a transaction that also notes its number."""

    app: wt.App
    dsn: str
    number: int = 0
    in_vain: int = 0
    ended: bool = False

    async def run(self) -> None:
        while not self.ended:
            try:
                connection = await asyncpg.connect(self.dsn)
            except (OSError, asyncpg.PostgresError):
                self.in_vain += 1
                await _pass(0.05)
                continue
            try:
                # Whether the last commit happened is not known when its answer was lost: the table says it.
                self.number = await connection.fetchval("SELECT COALESCE(max(number), 0) FROM sent")
                while not self.ended:
                    async with connection.transaction():
                        number = self.number + 1
                        await connection.execute("INSERT INTO sent VALUES ($1)", number)
                        await self.app.publish(Reserve(f"order-{number % STREAMS}", number), on=connection)
                    self.number = number
                    await _pass(0.01)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, wt.Error):
                self.in_vain += 1
            finally:
                connection.terminate()


@dataclass(frozen=True)
class Report:
    orders: int
    down: float
    failed_calls: Sequence[int]

    def __str__(self) -> str:
        return (
            f"{self.orders} orders, the server was down for {self.down:.1f} s, {sum(self.failed_calls)} calls failed; "
            "every effect once and in order"
        )


class Restart:
    """One run against a server of its own."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._dsn = server.dsn

    async def run(self, seconds: float) -> Report:
        connection = await asyncpg.connect(self._dsn)
        await migrate(connection, "whippletree")
        await connection.execute(_TABLES)
        await connection.close()
        settings = ServiceSettings(coordinator=CoordinatorSettings(lease_seconds=20), grace=30)
        services = [Service(new_app(self._dsn), settings) for _ in range(2)]
        publisher = Publisher(services[0].app, self._dsn)
        async with AsyncExitStack() as stack:
            works = [await stack.enter_async_context(service.running()) for service in services]
            publishing = asyncio.create_task(publisher.run())
            try:
                await until(lambda: publisher.number >= 30, seconds=PATIENCE)
                await self._stop()
                down_since, before = time.monotonic(), publisher.in_vain
                await until(lambda: time.monotonic() - down_since >= seconds, seconds=seconds + PATIENCE)
                await until(lambda: publisher.in_vain - before >= IN_VAIN, seconds=PATIENCE)
                await until(lambda: min(_failed(services)) >= IN_VAIN, seconds=PATIENCE)
                failed = _failed(services)
                await asyncio.to_thread(self._server.start)
                down, sent = time.monotonic() - down_since, publisher.number
                await until(lambda: publisher.number >= sent + 30, seconds=PATIENCE)
            finally:
                publisher.ended = True
                await publishing
            assert not any(work.done() for work in works), "an instance has ended"
            await until(self._all_is_done, seconds=PATIENCE)
            await self._check(services[1].app)
            assert not any(work.done() for work in works), "an instance has ended"
        return Report(await self._ask("SELECT count(*) FROM sent"), down, failed)

    async def _stop(self) -> None:
        """At once: sessions end in the middle of whatever they do, and the next start recovers."""
        pid = self._server.status().pid
        assert pid is not None
        # First the one who would start it again.
        os.kill(int((self._server.directory / "supervisor.lock").read_text()), signal.SIGKILL)
        os.kill(pid, signal.SIGQUIT)
        await until(lambda: not self._server.status().running, seconds=PATIENCE)

    async def _all_is_done(self) -> bool:
        return bool(
            await self._ask(
                "SELECT NOT EXISTS (SELECT FROM whippletree.wh_active_streams WHERE ready_at < 'infinity') AND NOT "
                "EXISTS (SELECT FROM whippletree.wh_subscribers WHERE checkpoint < (SELECT count(*) FROM sent))"
            )
        )

    async def _check(self, app: wt.App) -> None:
        sent: int = await self._ask("SELECT count(*) FROM sent")
        expected = {f"order-{k}": [n for n in range(1, sent + 1) if n % STREAMS == k] for k in range(STREAMS)}
        for who in ("reserve", "confirm", "keeper"):
            for stream, numbers in expected.items():
                found = await self._ask(
                    f"SELECT array_agg(number ORDER BY id) FROM effects WHERE (who, stream) = ('{who}', '{stream}')"
                )
                assert found == numbers, f"{who} of {stream}: lost, twice or disordered: {found}"
        for stream, numbers in expected.items():
            assert await app.rows(of_order).get(stream) == Numbers(numbers)
        row = await app.rows(of_all).get("all")
        kept = await self._ask("SELECT array_agg(number ORDER BY id) FROM effects WHERE who = 'keeper'")
        assert row == Numbers(kept), "the perspective with a key has another order than the feed"
        assert not await self._ask("SELECT count(*) FROM whippletree.wh_active_streams WHERE error IS NOT NULL")
        assert not await self._ask("SELECT count(*) FROM whippletree.wh_subscribers WHERE error IS NOT NULL")
        assert not await self._ask("SELECT count(*) FROM whippletree.wh_dead_letters")

    async def _ask(self, question: str) -> Any:
        connection = await asyncpg.connect(self._dsn)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()


def _failed(services: Sequence[Service]) -> list[int]:
    return [service.counters.database_not_ready_checks for service in services]


async def _pass(seconds: float) -> None:
    """Let time pass between two orders, or two attempts."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


def prove(seconds: float) -> Report:
    """Run on a server of its own."""
    with tempfile.TemporaryDirectory(prefix="whippletree-proof-") as directory:
        # The server may run under another user, who has to get in.
        Path(directory).chmod(0o755)
        with EmbeddedPostgres(Path(directory) / "server", server_settings=_SERVER_SETTINGS) as server:
            return asyncio.run(Restart(server).run(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.restart", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="for how long the server is down, at least")
    print(prove(parser.parse_args().seconds))  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
