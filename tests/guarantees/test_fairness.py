"""A claim takes no more than was asked for, and a long stream does not keep others waiting."""

from __future__ import annotations

import random

import asyncpg

from tests.guarantees.storing import outgoing, stores
from tests.scenario import T0, Given, Message, RowsWorker, Worker, completion, release, seconds
from whippletree.claim.batch import WorkReport
from whippletree.message.envelope import Queue


async def test_the_limit_of_a_claim_is_never_exceeded(given: Given, alice: Worker) -> None:
    for number in range(6):
        await given.outbox(stream=f"stream {number}", count=number + 1)
    for limit in (0, 1, 3, 7, 20, 100):
        claimed = await alice.claims(limit=limit)
        assert len(claimed) == min(limit, 21)
        await alice.reports(*map(release, claimed))


async def test_what_is_leased_is_what_is_returned(given: Given, alice: Worker, db: asyncpg.Connection) -> None:
    for number in range(6):
        await given.outbox(stream=f"stream {number}", count=3)
    claimed = await alice.claims(limit=8)
    leased = await db.fetch("SELECT message_id FROM wh_outbox WHERE instance_id = $1", alice.instance_id)
    assert {Message(row["message_id"]) for row in leased} == set(claimed)


async def test_a_stream_cut_off_by_the_limit_goes_on_where_it_stopped(given: Given, alice: Worker) -> None:
    stored = await given.outbox(count=5)
    assert await alice.claims(limit=3) == list(stored[:3])
    await alice.reports(*map(completion, stored[:3]))
    assert await alice.claims(limit=3) == list(stored[3:])


async def test_one_stream_gives_no_more_than_its_run_and_goes_to_the_tail(
    given: Given, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    alice = RowsWorker(pool, "alice", run_limit=2)
    long = await given.outbox(stream="long", count=6)
    short = await given.outbox(stream="short", count=1, as_of=T0 + seconds(1))
    as_of = T0 + seconds(2)
    assert await alice.claims(as_of=as_of, limit=2) == list(long[:2])
    await alice.reports(*map(completion, long[:2]), as_of=as_of)
    assert await alice.claims(as_of=as_of, limit=1) == list(short)
    await alice.reports(release(short[0]), as_of=as_of)
    assert set(await alice.claims(as_of=as_of, limit=3)) == {*short, *long[2:4]}


async def test_a_hundred_messages_of_one_stream_are_a_run(given: Given, alice: Worker) -> None:
    stored = await given.outbox(count=150)
    assert await alice.claims(limit=500) == list(stored[:100])


async def test_the_streams_that_have_waited_longest_go_first(given: Given, alice: Worker) -> None:
    stored = [(await given.outbox(stream=f"stream {number}", as_of=T0 - seconds(number)))[0] for number in range(5)]
    assert await alice.claims(limit=1) == [stored[4]]
    assert set(await alice.claims(limit=2)) == {stored[3], stored[2]}


async def test_a_claim_stops_when_it_has_enough_bytes(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    alice = RowsWorker(pool, "alice", byte_limit=10_000)
    payload = f'"{random.Random(1).randbytes(2_000).hex()}"'
    await stores(alice, *(outgoing(stream=f"stream {number}", payload=payload) for number in range(8)))
    claimed = await alice.claims()
    # It is about the limit: the message that reaches it is the last.
    assert 1 < len(claimed) < 8
    await alice.reports(*map(completion, claimed))
    assert alice.rejected == []
    assert await alice.claims()


async def test_a_message_larger_than_the_byte_limit_goes_alone(
    given: Given, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    alice = RowsWorker(pool, "alice", byte_limit=1)
    first, second = await given.outbox(count=2)
    assert await alice.claims() == [first]
    await alice.reports(completion(first))
    assert await alice.claims() == [second]


async def test_limits_are_per_queue(given: Given, pool: asyncpg.Pool[asyncpg.Record]) -> None:
    await given.outbox(count=5)
    await given.inbox(count=5)
    coordinator = RowsWorker(pool, "alice").coordinator
    batch = await coordinator.process_work_batch(WorkReport(limits={Queue.OUTBOX: 2, Queue.INBOX: 4}), as_of=T0)
    assert (len(batch.claimed_outbox_messages), len(batch.claimed_inbox_messages)) == (2, 4)
