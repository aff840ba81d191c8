"""A shop whose customers have accounts: the row of a customer, folded from the events of many orders."""

from __future__ import annotations

from collections.abc import Callable
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


class Shop:
    def __init__(self, pool: Pool, fold: Fold) -> None:
        self.pool = pool
        self.fold = fold
        self.types = MessageTypes()
        self.types.register(Bought, kind=MessageKind.EVENT, stream="order")

    async def opens(self, name: str = "account", fold: Fold | None = None) -> tuple[MultiStreamPerspective, Rows[Any]]:
        settings = PerspectiveSettings(
            name=name, key=lambda event: str(event.customer), columns=["total"], retry=AT_ONCE
        )
        perspective = define_perspective(
            fold or self.fold, settings, types=self.types, providers=Providers(), names=globals()
        )
        await register_perspective(perspective, self.pool)
        return MultiStreamPerspective(perspective=perspective, types=self.types), Rows(perspective, self.pool)

    async def sells(self, order: str, customer: str, total: int) -> Receipt:
        event = Bought(order, customer, total)
        payload = self.types.of(event).encode(event)
        return await EventStore(self.pool).append(order, [NewEvent(event_type="Bought", payload=payload)])
