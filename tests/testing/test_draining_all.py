"""`drained` runs whatever an app has: subscribers, perspectives with a key, and what comes in over a transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import whippletree as wt
from tests.transports.nats_server import NatsServer
from tests.work.shop import Placed, Reserve, Reserved
from whippletree.dispatch.transport import TransportFactory
from whippletree.testing import Database, NotDrained, drained
from whippletree.transports.in_process import InProcessTransport
from whippletree.transports.nats import NatsTransport


@dataclass(frozen=True)
class Count:
    reserved: int


def count(row: Count | None, event: Reserved) -> Count | None:
    return Count(1 + (row.reserved if row else 0))


@pytest.fixture
def app() -> wt.App:
    app = wt.App("shop")
    app.command(stream="order")(Reserve)
    app.event(stream="order")(Reserved)
    app.event(stream="order")(Placed)
    return app


async def test_subscribers_and_perspectives_with_a_key_come_to_the_end_of_the_feed(
    app: wt.App, database: Database
) -> None:
    seen: list[tuple[str, int]] = []

    @app.receptor
    async def reserve(command: Reserve) -> Reserved:
        return Reserved(command.order, command.number)

    @app.subscriber("mailer", mode=wt.InstanceMode.COORDINATED)
    async def mail(event: Reserved, key: wt.IdempotencyKey) -> None:
        seen.append(("mailer", event.number))
        if event.number < 3:
            await app.publish(Reserve("order-2", event.number + 1))

    @app.subscriber("newcomer", start=wt.Start.NOW)
    async def keep(event: Reserved, tx: wt.Transaction) -> None:
        seen.append(("newcomer", event.number))

    app.perspective(key=lambda event: "all")(count)
    async with database.serves(app):
        await app.publish(Reserve("order-1", 1))
        await drained(app)
        assert sorted(seen) == [(name, number) for name in ("mailer", "newcomer") for number in (1, 2, 3)]
        assert await app.rows(count).get("all") == Count(3)
        await drained(app)
        assert len(seen) == 6


@pytest.mark.parametrize("pause", [0, 3600])
async def test_a_subscriber_that_fails_is_said_and_not_tried_again(
    app: wt.App, database: Database, pause: float
) -> None:
    calls: list[int] = []

    @app.subscriber("mailer", retry=wt.Retry(first_pause=pause, longest_pause=pause))
    async def mail(event: Reserved) -> None:
        calls.append(event.number)
        if event.number == 2:
            raise ValueError("no mail")

    async with database.serves(app):
        await app.publish_all([Reserved("order-1", number) for number in (1, 2, 3)])
        with pytest.raises(NotDrained, match=r"(?s)subscriber mailer is at number 1.*event 2 failed .*no mail"):
            await drained(app)
    assert calls == [1, 2]


async def test_a_parked_or_paused_subscriber_is_said_by_name(app: wt.App, database: Database) -> None:
    @app.subscriber("mailer", retry=wt.Retry(attempts=1))
    async def mail(event: Reserved, tx: wt.Transaction) -> None:
        raise ValueError("no mail")

    @app.subscriber("sleeper")
    async def sleep(event: Reserved, tx: wt.Transaction) -> None: ...

    async with database.serves(app), database.connect() as connection:
        await app.publish(Reserved("order-1"))
        await connection.execute("SELECT whippletree.pause_subscriber('sleeper', true, 'for the test')")
        for _ in range(2):
            with pytest.raises(NotDrained, match=r"(?s)it is parked at event 1.*no mail.*sleeper.*it is paused"):
                await drained(app)
        await connection.execute("SELECT whippletree.pause_subscriber('sleeper', false, NULL)")
        await connection.execute("SELECT whippletree.skip_subscriber('mailer', 1, 'no such address')")
        await drained(app)


async def test_what_has_no_end_is_given_up(app: wt.App, database: Database) -> None:
    @app.subscriber("echo")
    async def echo(event: Reserved) -> None:
        await app.publish(Reserved(event.order, event.number + 1))

    async with database.serves(app):
        await app.publish(Reserved("order-1"))
        with pytest.raises(NotDrained, match="messages were handled, and there are still more"):
            await drained(app, at_most=20)


async def test_what_hangs_is_named(app: wt.App, database: Database) -> None:
    @app.receptor
    async def reserve(command: Reserve) -> None:
        await asyncio.Event().wait()

    async with database.serves(app):
        await app.publish(Reserve("order-1"))
        with pytest.raises(NotDrained, match=r"after 0.5 seconds these are not finished: stream .* in inbox"):
            await drained(app, within=0.5)


async def test_a_stream_that_was_passed_over_while_somebody_stored_into_it_is_not_forgotten(
    app: wt.App, database: Database
) -> None:
    seen = []

    @app.receptor
    async def reserve(command: Reserve) -> None:
        seen.append(command.number)

    async with database.serves(app), database.connect() as connection:
        await app.publish(Reserve("order-1", 1))
        # A claim that met the stream while another transaction was storing into it has put off the next look.
        await connection.execute("UPDATE whippletree.wh_active_streams SET ready_at = now() + interval '1 second'")
        await drained(app)
    assert seen == [1]


@asynccontextmanager
async def _in_process(*_: Any) -> AsyncIterator[InProcessTransport]:
    yield InProcessTransport()


async def test_what_an_app_publishes_to_itself_comes_in_and_is_handled(database: Database) -> None:
    await _talks_to_itself(database, _in_process)


async def test_what_is_still_with_a_broker_is_waited_for(database: Database, tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    await server.start()
    try:
        await _talks_to_itself(database, lambda *_: NatsTransport([server.url]))
    finally:
        server.stop()


async def _talks_to_itself(database: Database, transport: TransportFactory) -> None:
    app, seen = wt.App("shop"), []
    app.event(stream="order", topic="orders")(Placed)
    app.transport(transport, receives=["orders"])

    @app.receptor
    async def look(event: Placed) -> None:
        seen.append(event.number)

    async with database.serves(app):
        await app.publish_all([Placed("order-1", number) for number in range(20)])
        await drained(app)
    # Once out of the event store, once out of the inbox.
    assert sorted(seen) == sorted([*range(20), *range(20)])
