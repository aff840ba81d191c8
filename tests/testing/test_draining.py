"""`drained`: everything that can be done now is done, once, and what went wrong is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import whippletree as wt
from tests.work.shop import Reserve, Reserved
from whippletree.dispatch.transport import Subscription
from whippletree.testing import Database, NotDrained, drained
from whippletree.transports.in_process import InProcessTransport


@dataclass(frozen=True)
class Count:
    reserved: int


@pytest.fixture
def app() -> wt.App:
    app = wt.App("shop")
    app.command(stream="order")(Reserve)
    app.event(stream="order")(Reserved)
    return app


async def test_what_receptors_publish_is_worked_off_too(app: wt.App, database: Database) -> None:
    @app.receptor
    async def reserve(command: Reserve, tx: wt.Transaction) -> list[Any]:
        more = [Reserve(command.order, command.number - 1)] if command.number > 1 else []
        return [Reserved(command.order, command.number), *more]

    seen = []

    @app.receptor
    async def look(event: Reserved) -> None:
        seen.append(event.number)

    @app.perspective
    def count(row: Count | None, event: Reserved) -> Count | None:
        return Count(1 + (row.reserved if row else 0))

    async with database.serves(app):
        await app.publish(Reserve("order-1", 5))
        await drained(app)
        assert seen == [5, 4, 3, 2, 1]
        assert await app.rows(count).get("order-1") == Count(5)
        await drained(app)
        assert len(seen) == 5


@pytest.mark.parametrize("pause", [0, 3600])
async def test_a_failure_is_said_and_not_tried_again_however_short_its_pause(
    app: wt.App, database: Database, pause: float
) -> None:
    calls = set()

    @app.receptor(retry=wt.Retry(first_pause=pause, longest_pause=pause))
    async def reserve(command: Reserve, tx: wt.Transaction, context: wt.Context) -> None:
        calls.add((command.order, command.number, context.attempts))
        if command.order == "bad":
            raise ValueError("no stock")

    async with database.serves(app):
        await app.publish_all([Reserve("bad"), Reserve("bad", 1), *(Reserve("good", n) for n in range(20))])
        with pytest.raises(NotDrained, match="ValueError: no stock"):
            await drained(app)
    assert calls == {("bad", 0, 1), *(("good", n, 1) for n in range(20))}


async def test_a_parked_perspective_is_said(app: wt.App, database: Database) -> None:
    @app.perspective
    def count(row: Count | None, event: Reserved) -> Count | None:
        raise KeyError("total")

    async with database.serves(app):
        await app.publish(Reserved("order-1"))
        with pytest.raises(NotDrained, match="KeyError: 'total'"):
            await drained(app)


async def test_what_is_given_up_is_said(app: wt.App, database: Database) -> None:
    @app.receptor(retry=wt.Retry(attempts=1), on_poison="skip")
    async def reserve(command: Reserve) -> None:
        raise ValueError("no stock")

    async with database.serves(app):
        await app.publish(Reserve("order-1"))
        with pytest.raises(NotDrained, match=r"was given up .* ValueError: no stock"):
            await drained(app)
        await drained(app)


async def test_what_is_due_later_is_left_alone_and_what_is_due_is_done(app: wt.App, database: Database) -> None:
    seen = []

    @app.receptor
    async def reserve(command: Reserve) -> None:
        seen.append(command.number)

    async with database.serves(app):
        await app.publish(Reserve("order-1", 1), after=3600)
        await app.publish(Reserve("order-1", 2), after=0)
        await drained(app)
    assert seen == [2]


async def test_what_another_holds_is_not_waited_for(app: wt.App, database: Database) -> None:
    @app.receptor
    async def reserve(command: Reserve) -> None: ...

    async with database.serves(app), database.connect() as connection:
        await app.publish(Reserve("order-1"))
        async with connection.transaction():
            await connection.execute("SELECT FROM whippletree.wh_active_streams FOR UPDATE")
            with pytest.raises(NotDrained, match="its streams: 1 ready"):
                await drained(app)
        await drained(app)


async def test_the_outbox_is_published_over_the_transport(database: Database) -> None:
    app, transport = wt.App("shop"), InProcessTransport()
    app.event(stream="order", topic="orders")(Reserved)

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[InProcessTransport]:
        yield transport

    app.transport(opened)
    async with database.serves(app), transport.subscribe(["orders"], group="post") as post:
        await app.publish(Reserved("order-1"))
        acknowledged = asyncio.create_task(_acknowledge(post))
        await drained(app)
        assert await acknowledged == 1


async def _acknowledge(subscription: Subscription) -> int:
    deliveries = await subscription.receive(10)
    await subscription.ack(deliveries)
    return len(deliveries)
