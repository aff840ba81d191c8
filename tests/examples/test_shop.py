"""The small shop, started by the commands of its README, takes orders over HTTP and sends every parcel once."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from tests.house.tree import ROOT
from tests.waiting import until
from whippletree.settings import Dsn

README = ROOT / "examples" / "shop" / "README.md"
PROGRAMS = {"whippletree": ("-m", "whippletree"), "uvicorn": ("-m", "uvicorn"), "python": ()}
TEA = {"customer": "ada", "lines": [{"article": "tea", "quantity": 2, "price": 450}]}
BOOK = {"customer": "ben", "lines": [{"article": "book", "quantity": 1, "price": 1200}]}


@pytest.fixture
def environment(dsn: Dsn) -> dict[str, str]:
    return {**os.environ, "WHIPPLETREE_DSN": dsn.reveal(), "PYTHONPATH": f"{ROOT / 'src'}"}


@pytest.fixture
async def shop(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The shop's front, with everything behind it, as the README starts it."""
    printed = re.findall(r"^\$ (.*)$", README.read_text(encoding="utf-8").split("```")[1], re.MULTILINE)
    commands = [line for line in printed if line.split()[0] in PROGRAMS]
    log = tmp_path / "log"
    async with AsyncExitStack() as stack:
        for line in commands:
            arguments = command(line.removesuffix("&").replace("--port 8000", "--port 0"))
            if line.endswith("&"):
                await stack.enter_async_context(process(arguments, environment, log))
            else:
                await done(arguments, environment, log)
        address = await until(lambda: address_in(log))
        yield await stack.enter_async_context(httpx.AsyncClient(base_url=address, timeout=60))


async def test_an_order_can_be_read_at_once_and_its_parcel_follows(
    shop: httpx.AsyncClient, db: asyncpg.Connection
) -> None:
    ids = [uuid4() for _ in range(6)]
    placed = await asyncio.gather(*(shop.put(f"/orders/{order}", json=TEA) for order in ids))
    assert [response.status_code for response in placed] == [201] * 6
    assert {(UUID(r.json()["order_id"]), r.json()["total"]) for r in placed} == {(order, 900) for order in ids}

    orders = [await until(lambda order=order: shipped(shop, order)) for order in ids]  # type: ignore[misc]
    parcels = await db.fetch("SELECT number, order_id, articles FROM public.parcels")
    assert {(p["number"], p["order_id"], p["articles"]) for p in parcels} == {
        (order["parcel"], UUID(order["order_id"]), 2) for order in orders
    }
    assert len(parcels) == len(ids)


async def test_an_order_placed_twice_is_one_order_one_event_and_one_parcel(
    shop: httpx.AsyncClient, db: asyncpg.Connection, environment: dict[str, str], tmp_path: Path
) -> None:
    order = uuid4()
    answers = await asyncio.gather(*(shop.put(f"/orders/{order}", json=BOOK) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]

    await until(lambda: shipped(shop, order))
    assert await db.fetchval("SELECT count(*) FROM orders.wh_event_store WHERE event_type = 'OrderPlaced'") == 1
    assert await db.fetchval("SELECT count(*) FROM public.parcels") == 1
    assert [found["order_id"] for found in (await shop.get("/customers/ben/orders")).json()] == [str(order)]
    assert (await shop.get(f"/orders/{uuid4()}")).status_code == 404
    for schema in ("orders", "shipping"):
        await done(command(f"whippletree verify --schema {schema}"), environment, tmp_path / "verified")


def command(line: str) -> list[str]:
    program, *arguments = shlex.split(line)
    return [sys.executable, *PROGRAMS[program], *arguments]


@asynccontextmanager
async def process(arguments: list[str], environment: dict[str, str], log: Path) -> AsyncIterator[Process]:
    """A process that is asked to end when it is no longer needed. It writes to a file, which is never full."""
    with log.open("ab") as output:
        started = await asyncio.create_subprocess_exec(
            *arguments, cwd=ROOT, env=environment, stdout=output, stderr=output
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.terminate()
        await started.wait()


async def done(arguments: list[str], environment: dict[str, str], log: Path) -> None:
    async with process(arguments, environment, log) as started:
        assert await started.wait() == 0, read(log)


async def address_in(log: Path) -> str | None:
    found = re.search(r"running on (http://127\.0\.0\.1:\d+)", read(log))
    return found[1] if found else None


def read(log: Path) -> str:
    return log.read_text(encoding="utf-8")


async def shipped(shop: httpx.AsyncClient, order: UUID) -> Any:
    found = (await shop.get(f"/orders/{order}")).json()
    return found if found["parcel"] is not None else None
