"""The words in which tests of subscribers are written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import asyncpg

from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.exclusive import ExclusiveSettings
from whippletree.claim.instance import ServiceInstance
from whippletree.claim.session import InstanceSession, SessionSettings
from whippletree.dispatch.policy import Retry
from whippletree.dispatch.subscriber import CheckpointEvery, Follower, InstanceMode, Start
from whippletree.message.event import NewEvent, NumberedEvent
from whippletree.settings import Dsn
from whippletree.store.event_store import EventStore
from whippletree.store.feed import Chosen
from whippletree.store.transaction import Transaction
from whippletree.work.subscriber_row import SubscriptionState
from whippletree.work.subscription import Subscription
from whippletree.work.subscription_worker import SubscriptionSettings, SubscriptionWorker

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

AT_ONCE = Retry(attempts=3, first_pause=0.001, longest_pause=0.002)


@dataclass
class Diary:
    """A follower that writes down what it is given, and in its transaction when it has one."""

    name: str = "diary"
    chosen: Chosen = field(default_factory=Chosen)
    start: Start | int = Start.BEGINNING
    mode: InstanceMode = InstanceMode.COORDINATED
    retry: Retry = AT_ONCE
    checkpoint: CheckpointEvery = field(default_factory=CheckpointEvery)
    transactional: bool = True
    seen: list[str] = field(default_factory=list)
    before: Callable[[str], Any] = lambda name: None

    async def apply(self, events: Sequence[NumberedEvent], transaction: Transaction | None, attempts: int) -> None:
        for numbered in events:
            if (waited := self.before(numbered.event.event_type)) is not None:
                await waited
            if transaction is not None:
                await transaction.execute(
                    "INSERT INTO whippletree.effects (subscriber, number, event) VALUES ($1, $2, $3)",
                    self.name,
                    numbered.number,
                    numbered.event.event_type,
                )
            self.seen.append(numbered.event.event_type)


@dataclass
class Running:
    worker: SubscriptionWorker
    session: InstanceSession
    told: list[tuple[str, SubscriptionState]]

    def state(self, name: str = "diary") -> SubscriptionState:
        return self.worker.subscriptions[name].state


@asynccontextmanager
async def running(
    dsn: Dsn,
    *followers: Follower,
    session_dsn: Dsn | None = None,
    silent_after: float = 60,
    balance_every: float = 60,
    try_every: float = 0.05,
) -> AsyncIterator[Running]:
    """An instance that follows, until the context ends."""
    told: list[tuple[str, SubscriptionState]] = []

    def changed(subscription: Subscription) -> None:
        told.append((subscription.name, subscription.state))

    settings = SubscriptionSettings(
        poll_every=0.2,
        exclusive=ExclusiveSettings(try_every=try_every, silent_after=silent_after, balance_every=balance_every),
    )
    quick = SessionSettings(probe_every=0.1, probe_timeout=10, first_pause=0.001, longest_pause=0.05)
    async with asyncpg.create_pool(dsn.reveal(), min_size=0, max_size=8) as pool:
        instance = ServiceInstance(service_name="follower")
        coordinator = WorkCoordinator(pool, instance)
        await coordinator.process_work_batch(WorkReport(limits={}))
        async with InstanceSession(session_dsn or dsn, coordinator, quick) as session:
            worker = SubscriptionWorker(pool, session, instance.instance_id, followers, settings, changed=changed)
            async with worker:
                yield Running(worker, session, told)


async def make_effects(db: asyncpg.Connection) -> None:
    await db.execute(
        "CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, subscriber text, number bigint, event text)"
    )


async def append(pool: Pool, *names: str, stream: str = "a") -> None:
    await EventStore(pool).append(stream, [NewEvent(event_type=name, payload="{}") for name in names])


async def effects(db: asyncpg.Connection, subscriber: str = "diary") -> list[str]:
    rows = await db.fetch("SELECT event FROM effects WHERE subscriber = $1 ORDER BY id", subscriber)
    return [row[0] for row in rows]


async def row(db: asyncpg.Connection, subscriber: str = "diary") -> asyncpg.Record:
    found = await db.fetchrow("SELECT * FROM wh_subscriptions WHERE subscriber_name = $1", subscriber)
    assert found is not None
    return found
