"""A user's program, as a type checker sees it. Checked by test_users_types, and never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type
from uuid import UUID

import asyncpg
import pydantic
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

import whippletree as wt

app = wt.App("orders")


@app.event(stream="order_id")
@dataclass(frozen=True)
class OrderPlaced:
    order_id: UUID
    total: int


@app.event(stream=lambda event: f"order-{event.number}", topic="orders")
class OrderShipped(pydantic.BaseModel):
    number: int


@app.command()
@dataclass(frozen=True)
class ShipOrder:
    order_id: UUID


class Mailer: ...


app.provide(Mailer, Mailer)


@app.receptor
async def ship(event: OrderPlaced, tx: wt.Transaction) -> OrderShipped:
    assert_type(event.total, int)
    assert_type(await tx.fetch("SELECT 1"), list[asyncpg.Record])
    return OrderShipped(number=event.total)


@app.receptor(name="mail", effects="external", on_poison="skip", retry=wt.Retry(attempts=3, never=(ValueError,)))
def mail(event: OrderPlaced | OrderShipped, key: wt.IdempotencyKey, mailer: Mailer, context: wt.Context) -> None:
    assert_type(context.version, int)


@dataclass(frozen=True)
class Summary:
    orders: int


@app.perspective
def summary(row: Summary | None, event: OrderPlaced | OrderShipped) -> Summary | None:
    return row


@app.perspective(name="totals", columns=["orders"], key=lambda event: "all")
def totals(row: Summary | None, event: OrderPlaced) -> Summary:
    return Summary(event.total)


@app.upcaster("OrderPlaced", shape=1)
def lift(old: dict[str, int]) -> dict[str, int]:
    return {**old, "total": 0}


async def main(connection: asyncpg.Connection[asyncpg.Record], session: AsyncSession, plain: Session) -> None:
    assert_type(OrderPlaced(order_id=UUID(int=1), total=1), OrderPlaced)
    assert_type(OrderShipped(number=1).number, int)
    assert_type(mail(OrderShipped(number=1), wt.IdempotencyKey("k"), Mailer(), await context()), None)
    receipt = await app.publish(OrderPlaced(UUID(int=1), 2), on=connection)
    assert_type(receipt, wt.Receipt)
    assert_type(receipt.version, int | None)
    await app.publish(ShipOrder(UUID(int=1)), on=session, after=60.0, key="k")
    assert_type(app.publish_sync(OrderPlaced(UUID(int=1), 2), on=plain), wt.Receipt)
    assert_type(await app.cancel("k"), bool)
    assert_type(lift({}), dict[str, int])
    assert_type(await app.rows(summary).get("order-1"), Summary | None)
    assert_type(await app.rows(totals).find(orders=1), list[Summary])
    assert_type(summary(None, OrderShipped(number=1)), Summary | None)
    async with app.connected() as same:
        assert_type(same, wt.App)


async def context() -> wt.Context:
    raise NotImplementedError
