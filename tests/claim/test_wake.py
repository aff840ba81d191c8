"""A storer notifies only those who wait; a notification that is lost costs one poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.claim.wire import wire
from tests.conftest import Connect
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.claim.session import InstanceSession
from whippletree.claim.wake import WakeListener
from whippletree.message.envelope import OutboxMessage, Queue
from whippletree.message.event import NewEvent
from whippletree.message.outcome import MessageCompletion
from whippletree.settings import Dsn
from whippletree.store.event_store import EventStore
from whippletree.store.outbox import store_outbox

ASKING = WorkReport(wait=True)


def event() -> NewEvent:
    return NewEvent(event_type="Happened", payload="{}")


def message() -> OutboxMessage:
    return OutboxMessage(message_type="Happened", payload="{}")


class Ear:
    """Everything that is said on the channel."""

    def __init__(self, db: asyncpg.Connection, channel: str) -> None:
        self._db = db
        self._channel = channel
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen(self) -> None:
        await self._db.add_listener(self._channel, lambda *heard: self._heard.put_nowait(str(heard[3])))

    async def heard(self) -> list[str]:
        """What was said until now: notifications come in the order of commits, so a last one ends the list."""
        await self._db.execute("SELECT pg_notify($1, 'last')", self._channel)
        said = []
        async with asyncio.timeout(30):
            while (word := await self._heard.get()) != "last":
                said.append(word)
        return said


@pytest.fixture
async def ear(connect: Connect) -> Ear:
    connection = await connect()
    ear = Ear(connection, await connection.fetchval("SELECT wake_channel()"))
    await ear.listen()
    return ear


@pytest.fixture
def coordinator(pool: asyncpg.Pool[asyncpg.Record]) -> WorkCoordinator:
    return WorkCoordinator(pool, ServiceInstance(service_name="alice"))


@pytest.fixture
async def session(dsn: Dsn, coordinator: WorkCoordinator) -> AsyncIterator[InstanceSession]:
    async with InstanceSession(dsn, coordinator) as session:
        yield session


async def test_nobody_is_notified_while_nobody_waits(
    coordinator: WorkCoordinator, db: asyncpg.Connection, ear: Ear
) -> None:
    await store_outbox([message()], on=db)
    assert not (await coordinator.process_work_batch(WorkReport())).empty
    assert (await coordinator.process_work_batch(WorkReport())).empty
    await store_outbox([message(), message()], on=db)
    assert await ear.heard() == []


async def test_who_waits_is_notified_at_the_commit(coordinator: WorkCoordinator, connect: Connect, ear: Ear) -> None:
    assert (await coordinator.process_work_batch(ASKING)).empty
    storer = await connect()
    async with storer.transaction():
        # Several stores in one transaction say it once.
        await store_outbox([message()], on=storer)
        await store_outbox([message()], on=storer)
        assert await ear.heard() == []
    assert await ear.heard() == [""]


@pytest.mark.parametrize("count", [1, 2])
async def test_who_waits_for_events_is_notified(
    coordinator: WorkCoordinator, pool: asyncpg.Pool[asyncpg.Record], connect: Connect, ear: Ear, count: int
) -> None:
    follower = await connect()
    feed = Ear(follower, await follower.fetchval("SELECT feed_channel()"))
    await feed.listen()
    await follower.execute("SELECT register_subscriber('mail', 0, false)")
    store = EventStore(pool)
    # The first event of its type takes the long way.
    await store.append("order-17", [event()])
    assert (await coordinator.process_work_batch(ASKING)).empty
    await follower.execute("SELECT record_subscriber('mail', 0, 'live', true)")
    assert (await ear.heard(), await feed.heard()) == ([], [])
    await store.append("order-17", [event() for _ in range(count)])
    assert (await ear.heard(), await feed.heard()) == ([""], [""])


async def test_a_busy_system_sends_none(coordinator: WorkCoordinator, db: asyncpg.Connection, ear: Ear) -> None:
    assert (await coordinator.process_work_batch(ASKING)).empty
    await store_outbox([message() for _ in range(5)], on=db)
    assert await ear.heard() == [""]
    batch = await coordinator.process_work_batch(ASKING)
    await store_outbox([message()], on=db)
    assert await ear.heard() == [""]
    for _ in range(5):
        # It asks each time, and gets work with each report, so it does not wait.
        outcomes = [MessageCompletion(message.message_id) for message in batch.claimed_outbox_messages]
        batch = await coordinator.process_work_batch(WorkReport(outcomes=outcomes, wait=True))
        assert not batch.empty
        await store_outbox([message()], on=db)
    assert await ear.heard() == []


async def test_who_drains_or_does_not_work_the_queue_is_not_woken(
    coordinator: WorkCoordinator, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, ear: Ear
) -> None:
    receiver = WorkCoordinator(pool, ServiceInstance(service_name="receiver"))
    assert (await receiver.process_work_batch(WorkReport(wait=True, limits={Queue.INBOX: 10}))).empty
    assert (await coordinator.process_work_batch(ASKING)).empty
    await db.execute("SELECT drain_instance($1)", coordinator.instance.instance_id)
    # He is told at once that he drains, and polls.
    assert await ear.heard() == [""]
    assert (await coordinator.process_work_batch(ASKING)).empty
    await store_outbox([message()], on=db)
    await store_outbox([message(), message()], on=db)
    assert await ear.heard() == []
    await db.execute("SELECT drain_instance($1, false)", coordinator.instance.instance_id)
    assert await ear.heard() == [""]


async def test_who_was_just_woken_is_told_what_is_committed_after_it_found_no_more(
    coordinator: WorkCoordinator, db: asyncpg.Connection, connect: Connect, ear: Ear
) -> None:
    storer = await connect()
    assert (await coordinator.process_work_batch(ASKING)).empty
    await store_outbox([message()], on=db)
    (claimed,) = (await coordinator.process_work_batch(ASKING)).claimed_outbox_messages
    assert await ear.heard() == [""]
    async with storer.transaction():
        await store_outbox([message()], on=storer)
        report = WorkReport(outcomes=[MessageCompletion(claimed.message_id)], wait=True)
        assert (await coordinator.process_work_batch(report)).empty
        assert (await coordinator.process_work_batch(ASKING)).empty
    assert await ear.heard() == [""]


@pytest.mark.parametrize("count", [1, 2])
async def test_more_of_a_stream_that_is_in_hand_wakes_nobody(
    coordinator: WorkCoordinator, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, ear: Ear, count: int
) -> None:
    def orders(stream: str) -> list[OutboxMessage]:
        return [OutboxMessage(message_type="Happened", payload="{}", stream=stream) for _ in range(count)]

    await store_outbox(orders("in hand"), on=db)
    held = (await coordinator.process_work_batch(ASKING)).claimed_outbox_messages
    idle = WorkCoordinator(pool, ServiceInstance(service_name="bob"))
    assert (await idle.process_work_batch(ASKING)).empty
    await store_outbox(orders("in hand"), on=db)
    assert await ear.heard() == []
    await store_outbox(orders("new"), on=db)
    assert await ear.heard() == [""]
    # Whoever holds the stream gets the rest of it with its next report.
    outcomes = [MessageCompletion(message.message_id) for message in held]
    more = await coordinator.process_work_batch(WorkReport(outcomes=outcomes))
    assert {message.version for message in more.claimed_outbox_messages} >= {count + 1}


async def test_a_store_that_is_rolled_back_wakes_nobody(
    coordinator: WorkCoordinator, connect: Connect, ear: Ear
) -> None:
    await coordinator.process_work_batch(ASKING)
    storer = await connect()
    transaction = storer.transaction()
    await transaction.start()
    await store_outbox([message()], on=storer)
    await transaction.rollback()
    assert await ear.heard() == []


async def test_a_committed_message_wakes_the_instance(
    coordinator: WorkCoordinator, session: InstanceSession, db: asyncpg.Connection
) -> None:
    assert await session.wake.wait(10), "after it began to listen it polls once more"
    assert (await coordinator.process_work_batch(ASKING)).empty
    assert not await session.wake.wait(0)
    await store_outbox([message()], on=db)
    assert await session.wake.wait(10)
    assert session.wake.notifications == 1
    assert len((await coordinator.process_work_batch(ASKING)).claimed_outbox_messages) == 1


async def test_a_notification_between_two_waits_is_not_forgotten(
    session: InstanceSession, coordinator: WorkCoordinator, db: asyncpg.Connection
) -> None:
    await session.wake.wait(0)
    await coordinator.process_work_batch(ASKING)
    await store_outbox([message()], on=db)
    async with asyncio.timeout(30):
        while not session.wake.notifications:
            await db.fetchval("SELECT 1")
    assert await session.wake.wait(0)
    assert not await session.wake.wait(0)


async def test_a_lost_notification_costs_one_poll(
    dsn: Dsn, coordinator: WorkCoordinator, db: asyncpg.Connection
) -> None:
    async with wire(dsn) as (line, address), InstanceSession(address, coordinator) as session:
        await session.wake.wait(0)
        assert (await coordinator.process_work_batch(ASKING)).empty
        line.refusing = True
        await db.execute("SELECT pg_terminate_backend($1, 5000)", session.process_id)
        await store_outbox([message()], on=db)
        # Nobody heard it. Whoever waits is sent polling as soon as the connection is seen to be gone.
        assert await session.wake.wait(10)
        assert not session.wake.listening
        assert session.wake.notifications == 0
        assert len((await coordinator.process_work_batch(WorkReport())).claimed_outbox_messages) == 1


async def test_the_second_poll_finds_what_was_stored_during_the_first(
    coordinator: WorkCoordinator, connect: Connect, ear: Ear
) -> None:
    storer = await connect()
    async with storer.transaction():
        # Nobody waits yet, so nobody will be notified.
        await store_outbox([message()], on=storer)
        assert (await coordinator.process_work_batch(ASKING)).empty
    assert await ear.heard() == []
    assert not (await coordinator.process_work_batch(ASKING)).empty


async def test_without_a_connection_only_time_wakes() -> None:
    listener = WakeListener()
    assert not listener.listening
    assert not await listener.wait(0.001)
