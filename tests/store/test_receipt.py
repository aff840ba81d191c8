"""Reading your own write: a receipt waits for a perspective, and says what keeps it."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import S
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.errors import NotApplied, UnknownName
from whippletree.message.event import NewEvent
from whippletree.message.ids import StreamId
from whippletree.message.outcome import PerspectiveCheckpointCompletion, PerspectiveCheckpointFailure, Verdict
from whippletree.store.event_store import EventStore

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
async def store(pool: Pool, db: asyncpg.Connection) -> EventStore:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    return EventStore(pool)


@pytest.fixture
def alice(pool: Pool) -> WorkCoordinator:
    return WorkCoordinator(pool, ServiceInstance(service_name="shop"), CoordinatorSettings(max_attempts=1))


def placed() -> NewEvent:
    return NewEvent(event_type="OrderPlaced", payload="{}")


async def claims(worker: WorkCoordinator) -> None:
    batch = await worker.process_work_batch(WorkReport(limits={"perspective/summary": 10}))
    assert len(batch.claimed_perspective_work) == 1


def summary(row: object) -> None:
    """A perspective, as far as its name goes."""


async def test_it_returns_when_the_event_is_applied_by_whichever_instance(
    store: EventStore, alice: WorkCoordinator
) -> None:
    receipt = await store.append(S, [placed()])
    waiting = asyncio.create_task(receipt.applied(summary, timeout=60))
    await claims(alice)
    assert not waiting.done()
    done = PerspectiveCheckpointCompletion(StreamId(S), "summary", 1)
    await alice.process_work_batch(WorkReport(outcomes=[done], limits={}))
    await waiting


async def test_it_waits_for_the_last_event_that_the_perspective_folds(
    store: EventStore, alice: WorkCoordinator
) -> None:
    receipt = await store.append(S, [placed(), NewEvent(event_type="Invoice", payload="{}")])
    await claims(alice)
    done = PerspectiveCheckpointCompletion(StreamId(S), "summary", 1)
    await alice.process_work_batch(WorkReport(outcomes=[done], limits={}))
    await receipt.applied("summary", timeout=60)


async def test_it_says_that_nobody_runs_the_perspective(store: EventStore) -> None:
    receipt = await store.append("order-17", [placed()])
    with pytest.raises(NotApplied, match=r"summary is at version 0 of stream order-17.*no live instance works"):
        await receipt.applied("summary", timeout=0)


async def test_it_says_who_has_it_in_hand(store: EventStore, alice: WorkCoordinator) -> None:
    receipt = await store.append(S, [placed()])
    await claims(alice)
    with pytest.raises(NotApplied, match=r"version 1 is leased to shop on .*, which last beat"):
        await receipt.applied("summary", timeout=0)


async def test_it_says_that_the_stream_is_parked_and_why(store: EventStore, alice: WorkCoordinator) -> None:
    receipt = await store.append(S, [placed()])
    await claims(alice)
    failed = PerspectiveCheckpointFailure(StreamId(S), "summary", "KeyError: 'total'", verdict=Verdict.PARK)
    await alice.process_work_batch(WorkReport(outcomes=[failed], limits={}))
    with pytest.raises(NotApplied, match=r"is parked after 1 attempt: KeyError: 'total'"):
        await receipt.applied("summary", timeout=0)


async def test_an_unknown_perspective_and_one_that_folds_other_events_are_refused_at_once(store: EventStore) -> None:
    receipt = await store.append(S, [NewEvent(event_type="Invoice", payload="{}")])
    with pytest.raises(UnknownName, match="summary folds none of these events"):
        await receipt.applied("summary")
    with pytest.raises(UnknownName, match="no perspective of the name nonesuch is registered"):
        await receipt.applied("nonesuch")


async def test_waiting_before_the_commit_is_refused_at_once(store: EventStore, connect: Connect) -> None:
    connection = await connect()
    async with connection.transaction():
        receipt = await store.append(S, [placed()], on=connection)
        with pytest.raises(UnknownName, match="commit before you wait"):
            await receipt.applied("summary")
