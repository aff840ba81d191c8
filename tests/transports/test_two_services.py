"""Two services in processes of their own, started by `whippletree run`, with PostgreSQL or NATS between them."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

import whippletree as wt
from tests.house.tree import ROOT
from tests.transports.nats_server import NatsServer
from tests.transports.two_services import OrderPlaced
from tests.waiting import until
from whippletree.settings import Dsn
from whippletree.store.schema import migrate

CUSTOMERS = ["ada", "ben", "cleo", "dan", "eve"]
TABLES = """
    CREATE TABLE public.sent (id serial, customer text, number integer);
    CREATE TABLE public.noted (LIKE public.sent INCLUDING ALL)
"""


class Services:
    """The processes of both services, with the server between them."""

    def __init__(self, db: asyncpg.Connection, environment: dict[str, str], log: Path, stack: AsyncExitStack) -> None:
        self.running: dict[str, list[Process]] = defaultdict(list)
        self._db = db
        self._environment = environment
        self._log = log
        self._stack = stack

    async def start(self, name: str) -> None:
        arguments = (sys.executable, "-m", "whippletree", "run", f"tests.transports.two_services:{name}")
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *arguments, "--lease", "5", cwd=ROOT, env=self._environment, stdout=log, stderr=log
            )
        self._stack.push_async_callback(end, process)
        self.running[name].append(process)

    async def kill(self, name: str, which: int) -> None:
        process = self.running[name].pop(which)
        process.kill()
        await process.wait()

    async def noted(self) -> int:
        return int(await self._db.fetchval("SELECT count(*) FROM public.noted"))

    async def until_noted(self, count: int) -> None:
        await until(lambda: self._db.fetchval("SELECT count(*) >= $1 FROM public.noted", count), seconds=180)


@pytest.fixture(params=["postgres", "nats"])
async def services(
    request: pytest.FixtureRequest, dsn: Dsn, db: asyncpg.Connection, tmp_path: Path
) -> AsyncIterator[Services]:
    for schema in ("orders", "shipping"):
        await migrate(db, schema)
    await db.execute(TABLES)
    environment = {**os.environ, "WHIPPLETREE_DSN": dsn.reveal(), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    async with AsyncExitStack() as stack:
        if request.param == "nats":
            environment["NATS_URL"] = await stack.enter_async_context(nats_server(tmp_path))
        yield Services(db, environment, tmp_path / "log", stack)


async def test_what_a_service_publishes_the_other_handles_and_its_answer_comes_back(
    services: Services, dsn: Dsn, db: asyncpg.Connection
) -> None:
    await services.start("orders")
    await services.start("shipping")
    await place(dsn, range(40))
    await services.until_noted(40)
    for table in ("sent", "noted"):
        assert await handled(db, table) == each_once_in_order(range(40))
    assert await db.fetchval("SELECT count(*) FROM orders.wh_event_store WHERE event_type LIKE '%OrderPlaced'") == 40


async def test_order_is_kept_and_effects_happen_once_while_relays_and_receivers_are_killed(
    services: Services, dsn: Dsn, db: asyncpg.Connection
) -> None:
    chance = random.Random(7)
    for name in ("orders", "shipping") * 2:
        await services.start(name)
    await place(dsn, range(100))
    await services.until_noted(20)
    for turn in range(6):
        # In the middle of it, whatever they have in hand.
        name = ("orders", "shipping")[turn % 2]
        done = await services.noted()
        await place(dsn, range(100 + 100 * turn, 200 + 100 * turn))
        await services.kill(name, chance.randrange(2))
        await services.start(name)
        await services.until_noted(done + 10)
    await services.until_noted(700)
    for table in ("sent", "noted"):
        assert await handled(db, table) == each_once_in_order(range(700))


async def place(dsn: Dsn, numbers: range) -> None:
    """Orders of every customer in turn, some in one transaction."""
    front = wt.App("orders", dsn=dsn.reveal(), schema="orders")
    front.event(stream="customer", topic="orders")(OrderPlaced)
    async with front.connected():
        for first in numbers[:: len(CUSTOMERS)]:
            await front.publish_all([OrderPlaced(customer, first + place) for place, customer in enumerate(CUSTOMERS)])


async def handled(db: asyncpg.Connection, table: str) -> dict[str, list[int]]:
    """What was handled of each stream, in the order of its effects."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in await db.fetch(f"SELECT customer, number FROM public.{table} ORDER BY id"):
        found[row["customer"]].append(row["number"])
    return dict(found)


def each_once_in_order(numbers: range) -> dict[str, list[int]]:
    return {customer: list(numbers[place :: len(CUSTOMERS)]) for place, customer in enumerate(CUSTOMERS)}


@asynccontextmanager
async def nats_server(directory: Path) -> AsyncIterator[str]:
    server = NatsServer(directory)
    await server.start()
    try:
        yield server.url
    finally:
        server.stop()


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
