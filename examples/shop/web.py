"""The shop's front: `uvicorn examples.shop.web:web`. It publishes and reads; the work is done by the two services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from examples.shop.messages import Line, OrderPlaced
from examples.shop.orders import Summary, app, order_summary
from examples.shop.tables import Order, new_engine


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    engine = new_engine()
    web.state.sessions = async_sessionmaker(engine)
    async with app.connected():
        yield
    await engine.dispose()


web = FastAPI(title="A small shop", lifespan=lifespan)


async def new_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


class NewOrder(BaseModel):
    customer: str
    lines: tuple[Line, ...]


@web.put("/orders/{order_id}", status_code=201)
async def place(order_id: UUID, new: NewOrder, session: Annotated[AsyncSession, Depends(new_session)]) -> Summary:
    """The row and the event commit together: whoever asks twice gets one order, and one parcel."""
    event = OrderPlaced(order_id=order_id, customer=new.customer, lines=new.lines)
    try:
        async with session.begin():
            receipt = await app.publish(event, on=session)
            session.add(Order(id=order_id, customer=event.customer, total=event.total))
    except IntegrityError:
        raise HTTPException(409, "there is an order of this id already") from None
    # Whichever instance folds it: after this, we and everybody can read it.
    await receipt.applied(order_summary, timeout=30)
    return await read(order_id)


@web.get("/orders/{order_id}")
async def read(order_id: UUID) -> Summary:
    row: Summary | None = await app.rows(order_summary).get(order_id)
    if row is None:
        raise HTTPException(404, "there is no such order")
    return row


@web.get("/customers/{customer}/orders")
async def orders_of(customer: str) -> list[Summary]:
    return await app.rows(order_summary).find(customer=customer)
