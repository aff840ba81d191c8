"""The user's function as a subscriber: what chooses its events, and what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from tests.waiting import until
from tests.work.following import Pool, running
from whippletree.complete.retry import decide
from whippletree.dispatch.context import Context, IdempotencyKey
from whippletree.dispatch.invoke import Providers, read_signature
from whippletree.dispatch.policy import OnPoison, Retry
from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode, Subscriber
from whippletree.errors import InvalidSetting
from whippletree.message.event import NewEvent, StoredEvent
from whippletree.message.type_names import MessageKind, MessageTypes
from whippletree.settings import Dsn
from whippletree.store.event_store import EventStore
from whippletree.store.feed import Chosen
from whippletree.store.transaction import Transaction


@dataclass(frozen=True)
class OrderPlaced:
    order: str
    total: int


@dataclass(frozen=True)
class OrderShipped:
    order: str


@pytest.fixture
def types() -> MessageTypes:
    types = MessageTypes()
    for python_type in (OrderPlaced, OrderShipped):
        types.register(python_type, kind=MessageKind.EVENT, stream="order")
    types.upcasters.add("OrderMade", 1, lambda value: {**value, "total": 0}, becomes="OrderPlaced")
    return types


def subscriber(function: Callable[..., Any], types: MessageTypes, **settings: Any) -> Subscriber:
    invocation = read_signature(function, name="mailer", providers=Providers())
    return Subscriber(invocation=invocation, types=types, **settings)


def test_its_annotation_chooses_the_events_under_their_former_names_too(types: MessageTypes) -> None:
    async def one(event: OrderPlaced) -> None: ...
    async def both(event: OrderPlaced | OrderShipped) -> None: ...
    async def everything(event: StoredEvent) -> None: ...

    assert subscriber(one, types).chosen == Chosen(types=["OrderMade", "OrderPlaced"])
    assert subscriber(both, types).chosen == Chosen(types=["OrderMade", "OrderPlaced", "OrderShipped"])
    assert subscriber(everything, types).chosen == Chosen()
    assert subscriber(everything, types, patterns=["Order.*"]).chosen == Chosen(patterns=("Order.*",))


def test_it_coordinates_nothing_unless_told(types: MessageTypes) -> None:
    async def one(event: OrderPlaced) -> None: ...

    assert subscriber(one, types).mode is InstanceMode.SINGLE_INSTANCE


async def test_without_a_transaction_it_is_given_a_key_that_stays_the_same(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection, types: MessageTypes
) -> None:
    given: list[tuple[OrderPlaced, str, int]] = []

    async def send_mail(event: OrderPlaced, key: IdempotencyKey, context: Context) -> None:
        given.append((event, key, context.attempts))
        if context.attempts == 1:
            raise RuntimeError("no connection to the mail server")

    placed = NewEvent(event_type="OrderMade", payload='{"order": "o-1"}')
    await EventStore(pool).append("o-1", [NewEvent(event_type="Noise", payload="{}"), placed])
    mailer = subscriber(send_mail, types, retry=Retry(first_pause=0.001))
    async with running(dsn, mailer):
        await until(lambda: len(given) == 2)
    key = f"mailer:{placed.event_id}"
    assert given == [(OrderPlaced("o-1", 0), key, 1), (OrderPlaced("o-1", 0), key, 2)]


async def test_with_a_transaction_its_effects_commit_with_the_checkpoint(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection, types: MessageTypes
) -> None:
    await db.execute("CREATE TABLE totals (total bigint)")
    checkpoints: list[int] = []
    done = asyncio.Event()

    async def add(event: OrderPlaced, tx: Transaction) -> None:
        await tx.execute("INSERT INTO whippletree.totals VALUES ($1)", event.total)
        checkpoints.append(await tx.fetchval("SELECT checkpoint FROM whippletree.wh_subscribers"))
        if event.total == 4:
            done.set()

    events = [NewEvent(event_type="OrderPlaced", payload=f'{{"order": "o", "total": {n}}}') for n in range(1, 5)]
    await EventStore(pool).append("o", events)
    async with running(dsn, subscriber(add, types, checkpoint=CheckpointEvery(count=2))):
        await done.wait()
    assert await db.fetchval("SELECT array_agg(total ORDER BY total) FROM totals") == [1, 2, 3, 4]
    assert checkpoints == [0, 0, 2, 2], "two events a transaction"


def test_a_policy_that_cannot_work_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="every 1 event or more"):
        CheckpointEvery(count=0)


def test_retries_wait_longer_and_longer_and_end() -> None:
    retry = Retry(attempts=4, first_pause=1, longest_pause=3)
    delays = [decide(retry, OnPoison.PARK, ValueError(), attempts).retry_seconds for attempts in range(1, 5)]
    assert delays[3] is None
    for delay, longest in zip(delays[:3], (1, 2, 3), strict=True):
        assert delay is not None
        assert longest / 2 <= delay <= longest
