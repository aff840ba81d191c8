"""Subscribers, inline perspectives and those that choose their keys, as a program declares them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import asyncpg
import psycopg
import pytest

from tests.waiting import until
from tests.work.shop import Placed, Reserve, new_app, running
from whippletree import Context, IdempotencyKey, InstanceMode, Transaction
from whippletree.errors import DuplicateName, InvalidSetting, PerspectiveFailed, UnknownName, UsageError
from whippletree.settings import Dsn


@dataclass(frozen=True)
class Count:
    orders: tuple[str, ...] = ()


async def test_a_subscriber_follows_all_events_with_its_effects_in_the_transaction(
    dsn: Dsn, db: asyncpg.Connection
) -> None:
    await db.execute("CREATE TABLE public.mails (id bigint GENERATED ALWAYS AS IDENTITY, order_id text)")
    app = new_app(dsn)
    seen: list[tuple[str, str]] = []
    done = asyncio.Event()

    @app.subscriber("mailer", mode=InstanceMode.COORDINATED)
    async def mail(event: Placed, tx: Transaction) -> None:
        await tx.execute("INSERT INTO public.mails (order_id) VALUES ($1)", event.order)

    @app.subscriber("diary")
    async def diary(event: Placed, key: IdempotencyKey, context: Context) -> None:
        seen.append((event.order, key))
        if len(seen) == 3:
            done.set()

    async with running(app):
        receipts = [await app.publish(Placed(f"order-{number}")) for number in range(3)]
        async with asyncio.timeout(60):
            await done.wait()
        await until(lambda: db.fetchval("SELECT count(*) = 3 FROM public.mails"))
    assert [row[0] for row in await db.fetch("SELECT order_id FROM public.mails ORDER BY id")] == [
        "order-0",
        "order-1",
        "order-2",
    ]
    assert seen == [(f"order-{n}", f"diary:{receipt.message_id}") for n, receipt in enumerate(receipts)]


async def test_a_perspective_with_a_key_keeps_a_row_for_it(dsn: Dsn) -> None:
    app = new_app(dsn)

    @app.perspective(key=lambda event: "all")
    def orders(row: Count | None, event: Placed) -> Count | None:
        return Count((*(row or Count()).orders, event.order))

    async with running(app):
        for number in range(3):
            receipt = await app.publish(Placed(f"order-{number}"))
        await receipt.applied(orders, timeout=60)
        assert await app.rows(orders).get("all") == Count(("order-0", "order-1", "order-2"))


async def test_an_inline_perspective_is_there_when_the_event_is(dsn: Dsn, db: asyncpg.Connection) -> None:
    app = new_app(dsn)

    @app.perspective(inline=True)
    def orders(row: Count | None, event: Placed) -> Count | None:
        if row is not None and len(row.orders) == 2:
            raise ValueError("enough")
        return Count((*(row or Count()).orders, event.order))

    @app.receptor
    async def reserve(command: Reserve) -> Placed:
        return Placed(command.order)

    # Nobody works perspectives here: whatever is folded was folded where it was published.
    async with running(app, kinds=("receptors",)):
        await app.publish(Placed("order-1"))
        assert await app.rows(orders).get("order-1") == Count(("order-1",))
        async with db.transaction():
            await app.publish(Placed("order-1"), on=db)
            assert await app.rows(orders).get("order-1") == Count(("order-1",))
        assert await app.rows(orders).get("order-1") == Count(("order-1", "order-1"))
        with pytest.raises(PerspectiveFailed, match="enough"):
            await app.publish(Placed("order-1"))
        assert await db.fetchval("SELECT count(*) FROM wh_event_store") == 2
        await app.publish(Reserve("order-2"))
        await until(lambda: app.rows(orders).get("order-2"))
        async with await psycopg.AsyncConnection.connect(dsn.reveal()) as other:
            with pytest.raises(UsageError, match="has to be one of asyncpg"):
                await app.publish(Placed("order-3"), on=other)


def test_a_wrong_subscriber_is_refused_at_once(dsn: Dsn) -> None:
    app = new_app(dsn)

    @dataclass(frozen=True)
    class Unknown:
        order_id: str

    async def unknown(event: Unknown) -> None: ...

    async def untyped(event: object) -> None: ...

    async def good(event: Placed) -> None: ...

    with pytest.raises(UnknownName, match="not registered"):
        app.subscriber("a")(unknown)
    assert app.subscriber("b")(good) is good
    with pytest.raises(DuplicateName, match="a name of its own"):
        app.subscriber("b")(good)
    with pytest.raises((InvalidSetting, UnknownName)):
        app.subscriber("c")(untyped)
