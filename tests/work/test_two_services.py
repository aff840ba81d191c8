"""Two services in one database: what one publishes, the other handles, without a broker."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

import whippletree as wt
from tests.waiting import until
from tests.work.shop import drained, running
from whippletree.settings import Dsn
from whippletree.store.schema import migrate
from whippletree.transports.postgres import PostgresTransport


@dataclass(frozen=True)
class Placed:
    order: str
    number: int


@dataclass(frozen=True)
class Charge:
    order: str
    number: int


async def test_events_and_commands_reach_the_other_service_in_order(dsn: Dsn, db: asyncpg.Connection) -> None:
    await migrate(db, "billing")
    shop, billing = wt.App("shop", dsn=dsn.reveal()), wt.App("billing", dsn=dsn.reveal(), schema="billing")
    for app in (shop, billing):
        app.event(stream="order", topic="orders")(Placed)
        app.command(stream="order", topic="charges")(Charge)
    shop.transport(PostgresTransport.into({"orders": "billing", "charges": ["billing"]}))
    seen: list[tuple[str, int]] = []

    @billing.receptor
    async def bill(message: Placed | Charge) -> None:
        seen.append((type(message).__name__, message.number))

    async with running(shop), running(billing):
        for number in range(10):
            await shop.publish_all([Placed("order-1", number), Charge("order-1", number)])
        await drained(db)
        await until(lambda: len(seen) == 20)
    assert seen == [(kind, number) for number in range(10) for kind in ("Placed", "Charge")]
    assert await db.fetchval("SELECT count(*) FROM whippletree.wh_event_store") == 10
