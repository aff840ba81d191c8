"""The service of the demonstration: orders are placed, a receptor packs them, a perspective keeps the accounts."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import whippletree as wt

app = wt.App("orders", schema="whippletree_demo")


@app.event(stream="customer")
@dataclass(frozen=True)
class OrderPlaced:
    customer: str
    number: int
    total: int


@app.event(stream="customer")
@dataclass(frozen=True)
class OrderPacked:
    customer: str
    number: int


@app.receptor
async def pack(event: OrderPlaced, tx: wt.Transaction) -> OrderPacked:
    await asyncio.sleep(0.1)  # packing takes its time
    # The table has no unique key: were an effect to happen twice, it would be seen.
    await tx.execute(
        "INSERT INTO whippletree_demo.parcels (customer, number, packed_by) VALUES ($1, $2, $3)",
        *(event.customer, event.number, os.environ["PACKER"]),
    )
    return OrderPacked(event.customer, event.number)


@dataclass(frozen=True)
class Account:
    placed: int = 0
    packed: int = 0
    total: int = 0


@app.perspective
def account(row: Account | None, event: OrderPlaced | OrderPacked) -> Account:
    row = row or Account()
    if isinstance(event, OrderPlaced):
        return Account(row.placed + 1, row.packed, row.total + event.total)
    return Account(row.placed, row.packed + 1, row.total)
