"""An app runs beside the routes of a web program, from its start to its end."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
from fastapi import FastAPI

from tests.work.shop import Reserve, new_app, settings
from whippletree.settings import Dsn


async def test_fastapi_runs_the_receptors(dsn: Dsn, db: asyncpg.Connection) -> None:
    app = new_app(dsn)
    handled: asyncio.Queue[int] = asyncio.Queue()

    @app.receptor
    async def reserve(command: Reserve) -> None:
        handled.put_nowait(command.number)

    web = FastAPI(lifespan=app.lifespan(settings()))

    @web.post("/orders/{number}")
    async def place(number: int) -> int:
        await app.publish(Reserve("order-1", number))
        return await asyncio.wait_for(handled.get(), 60)

    async with web.router.lifespan_context(web):
        transport = httpx.ASGITransport(web)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            assert (await client.post("/orders/17")).json() == 17
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0
