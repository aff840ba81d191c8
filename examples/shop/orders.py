"""The service that takes orders: `whippletree run examples.shop.orders:app`."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel

import whippletree as wt
from examples.shop.messages import OrderPlaced, ParcelSent
from whippletree.transports.postgres import PostgresTransport

app = wt.App("orders", schema="orders")
app.event(stream="order_id", topic="orders")(OrderPlaced)
app.event(stream="order_id")(ParcelSent)
app.transport(PostgresTransport.into({"orders": "shipping"}))


@app.event(stream="order_id")
class OrderShipped(BaseModel, frozen=True):
    order_id: UUID
    parcel: int


@app.receptor
async def note_parcel(event: ParcelSent) -> OrderShipped:
    """What another service says becomes an event of our own, in the stream of its order."""
    return OrderShipped(order_id=event.order_id, parcel=event.parcel)


class Summary(BaseModel, frozen=True):
    order_id: UUID
    customer: str
    total: int
    parcel: int | None = None


@app.perspective(columns=["customer"], indexes=["customer"])
def order_summary(row: Summary | None, event: OrderPlaced | OrderShipped) -> Summary | None:
    if isinstance(event, OrderPlaced):
        return Summary(order_id=event.order_id, customer=event.customer, total=event.total)
    return row and row.model_copy(update={"parcel": event.parcel})
