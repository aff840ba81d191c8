"""A shop in which things have gone wrong: one order has no total, one parcel is too heavy, one customer no address."""

from __future__ import annotations

from dataclasses import dataclass

import whippletree as wt

app = wt.App("shop", schema="whippletree_pictures")
SOON = wt.Retry(attempts=3, first_pause=0.05, longest_pause=0.1)
LATER = wt.Retry(attempts=10, first_pause=3600, longest_pause=7200)


@app.event(stream="order")
@dataclass(frozen=True)
class OrderPlaced:
    order: str
    customer: str
    lines: dict[str, int]


@app.event(stream="order")
@dataclass(frozen=True)
class StockReserved:
    order: str
    total: int


@app.command(stream="order")
@dataclass(frozen=True)
class Ship:
    order: str
    weight: int


def total_of(lines: dict[str, int]) -> int:
    return lines["total"]


@app.receptor(retry=SOON)
async def reserve_stock(event: OrderPlaced, tx: wt.Transaction) -> StockReserved:
    total = total_of(event.lines)
    await tx.execute("INSERT INTO whippletree_pictures.stock VALUES ($1, $2)", event.order, total)
    return StockReserved(event.order, total)


@app.receptor(retry=LATER)
async def invoice(event: StockReserved, tx: wt.Transaction) -> None:
    if event.total > 200:
        raise ConnectionError("the tax office does not answer")


@app.receptor(retry=SOON)
async def ship(command: Ship, tx: wt.Transaction) -> None:
    if command.weight > 100:
        raise ValueError(f"{command.weight} kg are too heavy for the cart")


@dataclass(frozen=True)
class Summary:
    customer: str
    reserved: bool = False


@app.perspective
def order_summary(row: Summary | None, event: OrderPlaced | StockReserved) -> Summary | None:
    if isinstance(event, OrderPlaced):
        return Summary(event.customer)
    return row and Summary(row.customer, reserved=True)


@app.subscriber("mailer", mode=wt.InstanceMode.COORDINATED, retry=SOON)
async def send_mail(event: OrderPlaced, key: wt.IdempotencyKey) -> None:
    if event.customer == "nobody":
        raise LookupError(f"{event.customer} has no address")
