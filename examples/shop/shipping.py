"""The service that sends parcels: `whippletree run examples.shop.shipping:app`."""

from __future__ import annotations

import whippletree as wt
from examples.shop.messages import OrderPlaced, ParcelSent
from whippletree.transports.postgres import PostgresTransport

app = wt.App("shipping", schema="shipping")
app.event(stream="order_id")(OrderPlaced)
app.event(stream="order_id", topic="parcels")(ParcelSent)
app.transport(PostgresTransport.into({"parcels": "orders"}))


@app.receptor
async def send_parcel(event: OrderPlaced, tx: wt.Transaction) -> ParcelSent:
    """The parcel, the end of the message and the answer commit together, or not at all."""
    parcel = await tx.fetchval(
        "INSERT INTO public.parcels (order_id, articles) VALUES ($1, $2) RETURNING number",
        *(event.order_id, sum(line.quantity for line in event.lines)),
    )
    return ParcelSent(order_id=event.order_id, parcel=parcel)
