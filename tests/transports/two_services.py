"""Two services as a user writes them: in one database, or each on its own with NATS between them.

`whippletree run tests.transports.two_services:orders`, and the same for shipping.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import whippletree as wt
from whippletree.transports.nats import NatsTransport
from whippletree.transports.postgres import PostgresTransport


@dataclass(frozen=True)
class OrderPlaced:
    customer: str
    number: int


@dataclass(frozen=True)
class ParcelSent:
    customer: str
    number: int


orders = wt.App("orders", schema="orders")
orders.event(stream="customer", topic="orders")(OrderPlaced)
orders.event(stream="customer")(ParcelSent)

shipping = wt.App("shipping", schema="shipping")
shipping.event(stream="customer")(OrderPlaced)
shipping.event(stream="customer", topic="parcels")(ParcelSent)

if bus := os.environ.get("NATS_URL"):
    orders.transport(NatsTransport.at(bus), receives=["parcels"])
    shipping.transport(NatsTransport.at(bus), receives=["orders"])
else:
    orders.transport(PostgresTransport.into({"orders": "shipping"}))
    shipping.transport(PostgresTransport.into({"parcels": "orders"}))


@shipping.receptor
async def send_parcel(event: OrderPlaced, tx: wt.Transaction) -> ParcelSent:
    await tx.execute("INSERT INTO public.sent (customer, number) VALUES ($1, $2)", event.customer, event.number)
    return ParcelSent(event.customer, event.number)


@orders.receptor
async def note_parcel(event: ParcelSent, tx: wt.Transaction) -> None:
    await tx.execute("INSERT INTO public.noted (customer, number) VALUES ($1, $2)", event.customer, event.number)
