"""The service that sends parcels: `whippletree run examples.shop.shipping:app`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

import whippletree as wt
from examples.shop.messages import OrderPlaced, ParcelSent
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.transports.postgres import PostgresTransport

app = wt.App("shipping", schema="shipping")
app.event(stream="order_id")(OrderPlaced)
app.event(stream="order_id", topic="parcels")(ParcelSent)


@asynccontextmanager
async def to_orders(
    connections: asyncpg.Pool[asyncpg.Record], coordinator: WorkCoordinator
) -> AsyncIterator[PostgresTransport]:
    yield PostgresTransport(connections, coordinator.report, {"parcels": ["orders"]})


app.transport(to_orders)


@app.receptor
async def send_parcel(event: OrderPlaced, tx: wt.Transaction) -> ParcelSent:
    """The parcel, the end of the message and the answer commit together, or not at all."""
    parcel = await tx.fetchval(
        "INSERT INTO public.parcels (order_id, articles) VALUES ($1, $2) RETURNING number",
        *(event.order_id, sum(line.quantity for line in event.lines)),
    )
    return ParcelSent(order_id=event.order_id, parcel=parcel)
