"""The tables of both services, beside those of Whippletree. `python -m examples.shop.tables` makes them."""

from __future__ import annotations

import asyncio
from uuid import UUID

import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import whippletree as wt


class Model(DeclarativeBase):
    metadata = sqlalchemy.MetaData(schema="public")


class Order(Model):
    __tablename__ = "orders"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    customer: Mapped[str]
    total: Mapped[int]


class Parcel(Model):
    __tablename__ = "parcels"

    number: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[UUID]
    articles: Mapped[int]


def new_engine() -> AsyncEngine:
    """SQLAlchemy on the database that Whippletree uses."""
    dsn = wt.Settings.load().dsn
    if dsn is None:
        raise wt.InvalidSetting("say which database the shop uses: export WHIPPLETREE_DSN=$(whippletree db start)")
    return create_async_engine(sqlalchemy.make_url(dsn.reveal()).set(drivername="postgresql+asyncpg"))


async def install() -> None:
    engine = new_engine()
    async with engine.begin() as connection:
        await connection.run_sync(Model.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(install())
