"""`why` and the claim are one: change a condition, in this database only, and both follow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import asyncpg
import pytest

from tests.proof.mutants import Mutant, Patch
from tests.scenario import T0, Given, RowsWorker, S, minutes, seconds
from tests.sql.asking import Ask
from tests.work.following import append
from whippletree.claim.batch import WorkReport
from whippletree.message.envelope import Queue
from whippletree.message.event import NewEvent
from whippletree.store.event_store import EventStore

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Change: TypeAlias = Callable[[str, str, str], Awaitable[None]]


@pytest.fixture
def alice(pool: Pool) -> RowsWorker:
    return RowsWorker(pool, "alice", lease_seconds=300)


@pytest.fixture
def ask(db: asyncpg.Connection) -> Ask:
    return Ask(db)


@pytest.fixture
def change(db: asyncpg.Connection) -> Change:
    """Replaces some text of one condition."""

    async def install(condition: str, old: str, new: str) -> None:
        await Mutant("", (Patch(condition, old, new),)).install(db)

    return install


async def counted(db: asyncpg.Connection, what: str, later: float) -> int:
    as_of = T0 + seconds(later)
    return int(await db.fetchval(f"SELECT sum({what})::bigint FROM queue_overview($1)", as_of))


async def test_when_a_stream_is_ready(
    given: Given, db: asyncpg.Connection, alice: RowsWorker, ask: Ask, change: Change
) -> None:
    await alice.polls()
    (message,) = await given.outbox("order-17")
    assert "version 1 has been ready for 0 ms\nit is for alice" in await ask("order-17")
    await change("is_ready", "p_ready_at <= p_as_of", "p_ready_at + interval '1 second' <= p_as_of")
    for later, ready in ((0.9, False), (1.1, True)):
        assert ("has been ready" in await ask("order-17", later=later)) is ready
        assert await counted(db, "ready", later) == ready
        assert (message in await alice.claims(as_of=T0 + seconds(later))) is ready


async def test_when_events_are_ready(
    pool: Pool, db: asyncpg.Connection, alice: RowsWorker, ask: Ask, change: Change
) -> None:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    await EventStore(pool).append("order-17", [NewEvent(event_type="OrderPlaced", payload="{}")])
    await db.execute("UPDATE wh_active_streams SET ready_at = $1", T0)
    await change("is_ready", "p_ready_at <= p_as_of", "p_ready_at + interval '1 second' <= p_as_of")
    for later, ready in ((0.9, False), (1.1, True)):
        assert ("has been ready" in await ask("order-17", later=later)) is ready
        report = WorkReport(limits={"perspective/summary": 10})
        batch = await alice.coordinator.process_work_batch(report, as_of=T0 + seconds(later))
        assert bool(batch.claimed_perspective_work) is ready


async def test_whose_an_expired_lease_is(given: Given, pool: Pool, alice: RowsWorker, ask: Ask, change: Change) -> None:
    bob = RowsWorker(pool, "bob", lease_seconds=300)
    streams = [f"order-{number}" for number in range(8)]
    for stream in streams:
        await given.outbox(stream)
    for worker in (alice, bob, alice, bob):
        await worker.polls()
    for worker in (alice, bob):
        await worker.claims()
    said = [await ask(stream, later=310) for stream in streams]
    assert all("it is for alice" in told and "it is for bob" in told for told in said)
    await change("is_open_to", "p_holder IS NOT NULL OR ", "")
    said = [await ask(stream, later=310) for stream in streams]
    mine = [("it is for alice" in told, "it is for bob" in told) for told in said]
    assert set(mine) == {(True, False), (False, True)}
    for name, worker in (("alice", alice), ("bob", bob)):
        claimed = await worker.claims(as_of=T0 + seconds(310))
        assert len(claimed) == sum(f"it is for {name}" in told for told in said)


async def test_whether_a_message_is_due(
    given: Given, db: asyncpg.Connection, alice: RowsWorker, ask: Ask, change: Change
) -> None:
    (first,) = await given.outbox(S)
    await db.execute("UPDATE wh_messages SET scheduled_for = $1", T0 + minutes(5))
    await alice.polls()
    assert await ask(S) == f"stream {S} has work in outbox\nits head, version 1, is due in 5 min"
    await change("is_ahead", "p_time > p_as_of", "p_time > p_as_of + interval '5 minutes'")
    assert "version 1 has been ready" in await ask(S)
    assert await alice.claims() == [first]


async def test_who_works_a_queue(given: Given, pool: Pool, alice: RowsWorker, ask: Ask, change: Change) -> None:
    mailer = RowsWorker(pool, "mailer")
    streams = [f"order-{number}" for number in range(8)]
    for stream in streams:
        await given.outbox(stream)
    for _ in range(2):
        await alice.polls()
        await mailer.coordinator.process_work_batch(WorkReport(limits={Queue.INBOX: 0}), as_of=T0)
    assert all(["it is for alice" in await ask(stream) for stream in streams])
    await change("works_queue", "RETURN p_queues", "RETURN 'mailer' <> '' OR p_queues")
    said = [await ask(stream) for stream in streams]
    mine = sum("it is for alice" in told for told in said)
    assert 0 < mine < len(streams)
    assert sum("it is for mailer" in told for told in said) == len(streams) - mine
    assert len(await alice.claims()) == mine


async def test_when_a_subscriber_goes_on(pool: Pool, db: asyncpg.Connection, ask: Ask, change: Change) -> None:
    await append(pool, "First")
    await db.execute("SELECT number_events(), register_subscriber('diary', 0, true)")
    epoch = await db.fetchval("SELECT epoch FROM hold_subscriber('diary', $1)", S)
    await db.execute("SELECT fail_subscriber('diary', $1, 1, 1, 'boom', 41, pg_postmaster_start_time(), $2)", epoch, T0)
    for pause, change_it in ((41, None), (101, "p_retry_at + interval '1 minute' - p_as_of")):
        if change_it:
            await change("subscriber_held_up", "p_retry_at - p_as_of", change_it)
        held = await db.fetchval("SELECT held_up FROM record_subscriber('diary', $1, 'live', false, $2)", epoch, T0)
        assert held == pause
        assert f"event 1 failed 1 time and is retried in {pause} s: boom" in await ask("diary")
