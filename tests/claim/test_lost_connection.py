"""A connection lost in the middle of a call leaves nothing half-done, and the instance finds out what happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.claim.wire import Cut, Wire, cuts, wire
from tests.conftest import Connect
from tests.scenario import Given, S
from tests.waiting import how_many_wait, until_somebody_waits
from whippletree.claim.batch import WorkBatch, WorkBatchFlags, WorkReport
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.errors import StoreUnavailable
from whippletree.message.envelope import ClaimedMessage, InboxMessage, OutboxMessage, Queue
from whippletree.message.ids import MessageId
from whippletree.message.outcome import MessageCompletion, MessageFailure
from whippletree.settings import Dsn
from whippletree.store.database import open_pool
from whippletree.store.outbox import store_outbox

BEFORE = Cut(0)
"""The request does not reach the server."""
DELIVERED = Cut(1_000_000)
"""The request reaches the server, and the connection ends with it."""
AFTER = Cut(0, "answer")
"""The call has happened; nothing of its answer arrives."""

OUTBOX = {Queue.OUTBOX: 100}


@dataclass
class Line:
    """A coordinator whose only connection goes through a wire."""

    coordinator: WorkCoordinator
    wire: Wire

    async def hands_in(self, report: WorkReport) -> WorkBatch:
        return await self.coordinator.process_work_batch(report)

    async def loses(self, report: WorkReport, cut: Cut) -> None:
        self.wire.cut_next_call(cut)
        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            await self.hands_in(report)


@pytest.fixture
async def line(dsn: Dsn) -> AsyncIterator[Line]:
    async with (
        wire(dsn) as (own, address),
        asyncpg.create_pool(address.reveal(), min_size=0, max_size=1) as connections,
    ):
        line = Line(WorkCoordinator(connections, ServiceInstance(service_name="alice")), own)
        await line.hands_in(WorkReport())
        yield line


def message(stream: UUID | str | None = S) -> OutboxMessage:
    return OutboxMessage(message_type="Happened", payload="{}", stream=stream)


def done(*messages: ClaimedMessage) -> list[MessageCompletion]:
    return [MessageCompletion(message.message_id) for message in messages]


async def pending(db: asyncpg.Connection) -> list[UUID]:
    return [row[0] for row in await db.fetch("SELECT message_id FROM wh_outbox ORDER BY stream_id, version")]


async def test_a_call_that_did_not_arrive_has_not_happened(line: Line, db: asyncpg.Connection) -> None:
    stored, new = message(), message()
    await store_outbox([stored], on=db)
    (held,) = (await line.hands_in(WorkReport())).claimed_outbox_messages
    report = WorkReport(outcomes=done(held), new_outbox_messages=[new], limits={})
    await line.loses(report, BEFORE)
    assert await pending(db) == [stored.message_id]

    answer = await line.hands_in(report)
    assert (list(answer.rejected), list(answer.refused)) == ([], [])
    assert await pending(db) == [new.message_id]


@pytest.mark.parametrize("cut", [AFTER, DELIVERED], ids=["answered", "delivered"])
async def test_a_claim_whose_answer_was_lost_comes_again(line: Line, db: asyncpg.Connection, cut: Cut) -> None:
    stored = [message() for _ in range(3)]
    await store_outbox(stored, on=db)
    await line.loses(WorkReport(), cut)
    batch = await line.hands_in(WorkReport())
    assert [m.message_id for m in batch.claimed_outbox_messages] == [m.message_id for m in stored]
    assert {m.attempts for m in batch.claimed_outbox_messages} == {1}
    assert (await line.hands_in(WorkReport())).empty
    assert list((await line.hands_in(WorkReport(outcomes=done(*batch.claimed_outbox_messages)))).rejected) == []
    assert await pending(db) == []


async def test_what_comes_again_counts_against_the_limit(line: Line, db: asyncpg.Connection) -> None:
    await store_outbox([message(uuid4()) for _ in range(3)], on=db)
    await line.loses(WorkReport(limits={Queue.OUTBOX: 5}), AFTER)
    await store_outbox([message(uuid4()) for _ in range(10)], on=db)
    batch = await line.hands_in(WorkReport(limits={Queue.OUTBOX: 5}))
    assert len({m.message_id for m in batch.claimed_outbox_messages}) == len(batch.claimed_outbox_messages) == 5
    assert await db.fetchval("SELECT count(*) FROM wh_outbox WHERE instance_id IS NOT NULL") == 5


async def test_a_lost_claim_waits_until_it_is_asked_for(line: Line, given: Given, db: asyncpg.Connection) -> None:
    (out,) = await given.outbox(as_of=await db.fetchval("SELECT now()"))
    (into,) = await given.inbox(as_of=await db.fetchval("SELECT now()"))
    await line.loses(WorkReport(), AFTER)
    assert (await line.hands_in(WorkReport(flags=WorkBatchFlags.SKIP_CLAIM))).empty
    first = await line.hands_in(WorkReport(limits={Queue.INBOX: 1}))
    assert [m.message_id for m in first.claimed_inbox_messages] == [into.message_id]
    assert first.claimed_outbox_messages == []
    second = await line.hands_in(WorkReport())
    assert [m.message_id for m in second.claimed_outbox_messages] == [out.message_id]
    assert second.claimed_inbox_messages == []


async def test_completions_that_were_accepted_are_not_rejected(line: Line, db: asyncpg.Connection) -> None:
    await store_outbox([message("a"), message("a"), message("b"), message(None)], on=db)
    held = (await line.hands_in(WorkReport())).claimed_outbox_messages
    report = WorkReport(outcomes=done(*held))
    await line.loses(report, AFTER)
    assert await pending(db) == []
    assert list((await line.hands_in(report)).rejected) == []
    assert len(line.coordinator.held) == 0


async def test_the_rest_of_a_run_stays_in_hand(line: Line, db: asyncpg.Connection) -> None:
    await store_outbox([message() for _ in range(3)], on=db)
    first, second, third = (await line.hands_in(WorkReport())).claimed_outbox_messages
    report = WorkReport(outcomes=done(first))
    await line.loses(report, AFTER)
    assert list((await line.hands_in(report)).rejected) == []
    assert list((await line.hands_in(WorkReport(outcomes=done(second, third)))).rejected) == []
    assert await pending(db) == []


async def test_more_may_be_finished_by_the_time_of_the_second_report(line: Line, db: asyncpg.Connection) -> None:
    await store_outbox([message() for _ in range(3)], on=db)
    first, second, third = (await line.hands_in(WorkReport())).claimed_outbox_messages
    await line.loses(WorkReport(outcomes=done(first)), AFTER)
    assert list((await line.hands_in(WorkReport(outcomes=done(first, second, third)))).rejected) == []
    assert await pending(db) == []


async def test_a_failure_is_recorded_once(line: Line, db: asyncpg.Connection) -> None:
    await store_outbox([message() for _ in range(3)], on=db)
    first, second, third = (await line.hands_in(WorkReport())).claimed_outbox_messages
    failed = MessageFailure(second.message_id, "boom", retry_seconds=3600)
    report = WorkReport(outcomes=[*done(first), failed])
    await line.loses(report, AFTER)
    rejected = (await line.hands_in(report)).rejected
    # The lease went with the failure, so it cannot be handed in again; the completion before it is not doubted.
    assert {r.message_id for r in rejected} == {second.message_id, third.message_id}
    assert [
        tuple(row) for row in await db.fetch("SELECT version, attempts, error FROM wh_outbox ORDER BY version")
    ] == [
        (2, 1, "boom"),
        (3, 0, None),
    ]


async def test_a_lease_that_was_really_lost_is_rejected_all_the_same(
    line: Line, db: asyncpg.Connection, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    await store_outbox([message("a"), message("b")], on=db)
    held = (await line.hands_in(WorkReport())).claimed_outbox_messages
    report = WorkReport(outcomes=done(*held), limits={})
    await line.loses(report, BEFORE)
    bob = WorkCoordinator(pool, ServiceInstance(service_name="bob"))
    later = await db.fetchval("SELECT now() + interval '301 seconds'")
    taken = (await bob.process_work_batch(WorkReport(limits={Queue.OUTBOX: 2}), as_of=later)).claimed_outbox_messages
    assert len(taken) == 2
    assert {r.message_id for r in (await line.hands_in(report)).rejected} == {m.message_id for m in held}
    assert len(await pending(db)) == 2


async def test_new_messages_are_not_stored_twice(line: Line, db: asyncpg.Connection) -> None:
    before, new = message(), message()
    await store_outbox([before], on=db)
    received = InboxMessage(message_id=MessageId(uuid4()), message_type="Happened", payload="{}")
    report = WorkReport(new_outbox_messages=[new], new_inbox_messages=[received], flags=WorkBatchFlags.SKIP_CLAIM)
    await line.loses(report, AFTER)
    answer = await line.hands_in(report)
    assert [(r.message_id, r.outcome) for r in answer.refused] == [(received.message_id, "duplicate")]
    assert await pending(db) == [before.message_id, new.message_id]

    # Without a lost answer in between, an id that waits already is somebody's mistake.
    again = await line.hands_in(report)
    assert {(r.message_id, r.outcome) for r in again.refused} == {
        (new.message_id, "refused"),
        (received.message_id, "duplicate"),
    }


async def test_a_lost_call_that_still_waits_is_ended_before_the_next(
    line: Line, connect: Connect, db: asyncpg.Connection
) -> None:
    storer = await connect()
    report = WorkReport(new_outbox_messages=[message()])
    async with storer.transaction():
        await store_outbox([message()], on=storer)
        await line.loses(report, DELIVERED)
        await until_somebody_waits(db)
        lost = await db.fetchval(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        again = asyncio.create_task(line.hands_in(report))
        async with asyncio.timeout(30):
            while await db.fetchval("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", lost):
                pass
        assert not again.done()
    batch = await again
    assert list(batch.refused) == []
    assert [m.version for m in batch.claimed_outbox_messages] == [1, 2]


async def test_a_call_that_is_under_way_is_waited_for(connect: Connect, db: asyncpg.Connection, given: Given) -> None:
    """As behind a pooler, where nobody knows which server process the call was lost with."""
    lost, finder = await connect(), await connect()
    (stored,) = await given.outbox()
    instance_id = uuid4()
    async with lost.transaction():
        await lost.fetchrow("SELECT * FROM process_work_batch($1, 'alice', 'here', 1)", instance_id)
        await lost.fetchrow(
            "SELECT * FROM process_work_batch($1, 'alice', 'here', 1, p_as_of => '2040-01-01')", instance_id
        )
        waiting = asyncio.create_task(finder.execute("SELECT end_lost_calls($1, '{}')", instance_id))
        await until_somebody_waits(db)
        assert not waiting.done()
    await waiting
    resumed = await finder.fetch("SELECT message_id FROM resume_claims($1, 'outbox', 0)", instance_id)
    assert [row[0] for row in resumed] == [stored.message_id]


async def test_wherever_the_connection_is_cut_every_message_is_handled_once_and_in_order(
    line: Line, db: asyncpg.Connection
) -> None:
    stored = [message(stream) for stream in ("a", "b", "c") for _ in range(20)]
    await store_outbox(stored, on=db)
    expected = [m.message_id for m in stored]
    handled: list[ClaimedMessage] = []
    inhand: Sequence[ClaimedMessage] = ()
    for cut in cuts(seed=20261115, count=30):
        new = message("new")
        expected.append(new.message_id)
        line.wire.cut_next_call(cut)
        report = WorkReport(outcomes=done(*inhand), new_outbox_messages=[new], limits={Queue.OUTBOX: 2})
        batch = await insisted(line, report)
        assert (list(batch.rejected), list(batch.refused)) == ([], []), cut
        handled += inhand
        inhand = batch.claimed_outbox_messages
    while inhand:
        batch = await line.hands_in(WorkReport(outcomes=done(*inhand)))
        assert list(batch.rejected) == []
        handled += inhand
        inhand = batch.claimed_outbox_messages
    assert sorted(m.message_id for m in handled) == sorted(expected)
    for stream_id in {m.stream_id for m in handled}:
        versions = [m.version for m in handled if m.stream_id == stream_id]
        assert versions == list(range(1, len(versions) + 1))


async def test_a_cancelled_call_leaves_no_transaction_open_and_the_next_one_works(
    line: Line, connect: Connect, db: asyncpg.Connection
) -> None:
    storer = await connect()
    report = WorkReport(new_outbox_messages=[message()])
    async with storer.transaction():
        await store_outbox([message()], on=storer)
        call = asyncio.create_task(line.hands_in(report))
        await until_somebody_waits(db)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await how_many_wait(db) == 0
        open_ones = "SELECT pid FROM pg_stat_activity WHERE state LIKE 'idle in%' AND datname = current_database()"
        assert [row[0] for row in await db.fetch(open_ones)] == [storer.get_server_pid()]
    batch = await line.hands_in(report)
    assert [m.version for m in batch.claimed_outbox_messages] == [1, 2]


async def insisted(line: Line, report: WorkReport) -> WorkBatch:
    """What an instance does: hand in the same report until it is answered."""
    while True:
        try:
            return await line.hands_in(report)
        except StoreUnavailable:
            continue


async def test_a_call_whose_answer_never_comes_is_given_up_and_found_out(dsn: Dsn, db: asyncpg.Connection) -> None:
    """A network that swallows everything and says nothing."""
    await store_outbox([message(), message()], on=db)
    first, second = await pending(db)
    async with asyncio.timeout(60), wire(dsn) as (own, address), open_pool(address, size=1) as connections:
        hurried = CoordinatorSettings(lease_seconds=1)
        coordinator = WorkCoordinator(connections, ServiceInstance(service_name="alice"), hurried)
        (one, two) = (await coordinator.process_work_batch(WorkReport())).claimed_outbox_messages
        own.freeze()
        report = WorkReport(outcomes=done(one), flags=WorkBatchFlags.SKIP_CLAIM)
        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            await coordinator.process_work_batch(report)
        assert not (await coordinator.process_work_batch(report)).rejected
    assert (one.message_id, two.message_id) == (first, second)
    assert await pending(db) == [second]


async def test_a_pool_whose_connections_have_fallen_silent_is_closed(dsn: Dsn) -> None:
    async with asyncio.timeout(30), wire(dsn) as (own, address), open_pool(address) as connections:
        await connections.execute("SELECT 1")
        own.freeze()
