"""A shop whose customers have accounts: the row of a customer, folded from the events of many orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg

from tests.work.following import AT_ONCE
from whippletree.dispatch.invoke import Providers
from whippletree.dispatch.multi_stream import MultiStreamPerspective
from whippletree.dispatch.perspective import PerspectiveSettings, define_perspective
from whippletree.dispatch.rows import Rows, register_perspective
from whippletree.message.event import NewEvent
from whippletree.message.type_names import MessageKind, MessageTypes
from whippletree.store.event_store import EventStore
from whippletree.store.receipt import Receipt

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@dataclass(frozen=True)
class Bought:
    order: str
    customer: str
    total: int


@dataclass(frozen=True)
class Account:
    orders: tuple[str, ...]
    total: int


Fold: TypeAlias = Callable[[Account | None, Bought], Account | None]


def account(row: Account | None, event: Bought) -> Account | None:
    """What a customer has bought, in order. A total of nothing closes the account."""
    if event.total == 0:
        return None
    row = row or Account((), 0)
    return Account((*row.orders, event.order), row.total + event.total)


class Shop:
    def __init__(self, pool: Pool, fold: Fold) -> None:
        self.pool = pool
        self.fold = fold
        self.types = MessageTypes()
        self.types.register(Bought, kind=MessageKind.EVENT, stream="order")

    async def opens(
        self, name: str = "account", fold: Fold | None = None, key: Callable[[Any], str] = lambda event: event.customer
    ) -> tuple[MultiStreamPerspective, Rows[Any]]:
        settings = PerspectiveSettings(name=name, key=key, columns=["total"], retry=AT_ONCE)
        perspective = define_perspective(
            fold or self.fold, settings, types=self.types, providers=Providers(), names=globals()
        )
        await register_perspective(perspective, self.pool)
        return MultiStreamPerspective(perspective=perspective, types=self.types), Rows(perspective, self.pool)

    async def sells(self, order: str, customer: str, total: int) -> Receipt:
        return await self.sells_all(order, [(customer, total)])

    async def sells_all(self, order: str, sales: Sequence[tuple[str, int]]) -> Receipt:
        """To customers, for a total each, in one order."""
        events = [Bought(order, customer, total) for customer, total in sales]
        new = [NewEvent(event_type="Bought", payload=self.types.of(event).encode(event)) for event in events]
        return await EventStore(self.pool).append(order, new)
