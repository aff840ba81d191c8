"""Those who store and those who work do not wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg

from tests.guarantees.storing import as_claimed, outgoing, stores
from tests.scenario import T0, Given, S, Worker, completion, failure, minutes, release, seconds
from tests.waiting import until_somebody_waits

Connect = Callable[[], Awaitable[asyncpg.Connection]]


async def test_a_storer_that_rolled_back_leaves_nothing_to_claim(
    given: Given, alice: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    other = await connect()
    transaction = other.transaction()
    await transaction.start()
    await given.outbox(on=other, count=3)
    await transaction.rollback()
    assert await alice.claims() == []
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_streams") == 0


async def test_the_empty_row_of_a_storer_that_rolled_back_vanishes_at_the_next_claim(
    given: Given, alice: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    """A storer that found the stream's row keeps it alive while the stream drains, and then stores nothing."""
    (first,) = await given.outbox()
    await alice.claims()
    other = await connect()
    transaction = other.transaction()
    await transaction.start()
    await given.outbox(on=other)
    await alice.reports(completion(first))
    assert alice.rejected == []
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 1
    await transaction.rollback()
    assert await alice.claims(as_of=T0 + seconds(1)) == []
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0
    (second,) = await given.outbox(as_of=T0 + seconds(1))
    assert await alice.claims(as_of=T0 + seconds(1)) == [second]
    assert await db.fetchval("SELECT version FROM wh_outbox") == 2


async def test_a_long_open_storing_transaction_holds_up_neither_claims_nor_reports_of_its_stream(
    given: Given, alice: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    first, second, third = await given.outbox(count=3)
    storer = await connect()
    async with asyncio.timeout(20), storer.transaction():
        later = await given.outbox(on=storer, count=2)
        assert await alice.claims(limit=2) == [first, second]
        await alice.reports(failure(first, retry_at=T0 + seconds(1)))
        assert await alice.claims(as_of=T0 + seconds(1)) == [first]
        await alice.reports(release(first), as_of=T0 + seconds(1))
        assert await alice.claims(as_of=T0 + seconds(1)) == [first]
        await alice.reports(completion(first), as_of=T0 + seconds(1))
        assert await alice.claims(as_of=T0 + seconds(1)) == [second, third]
        await alice.reports(completion(second), completion(third), as_of=T0 + seconds(1))
        assert alice.rejected == []
        assert await alice.claims(as_of=T0 + seconds(2)) == []
    assert await alice.claims(as_of=T0 + minutes(1)) == list(later)


async def test_a_long_open_storing_transaction_does_not_make_claims_spin(
    given: Given, alice: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    """The emptied stream is looked at again ever later, up to a second."""
    (first,) = await given.outbox()
    await alice.claims()
    storer = await connect()
    transaction = storer.transaction()
    await transaction.start()
    (later,) = await given.outbox(on=storer)
    await alice.reports(completion(first))
    looks = []
    as_of = T0
    while as_of < T0 + seconds(10):
        assert await alice.claims(as_of=as_of) == []
        ready_at = await db.fetchval("SELECT ready_at FROM wh_active_streams")
        assert ready_at > as_of
        looks.append(ready_at - as_of)
        as_of = ready_at
    assert looks == sorted(looks)
    assert looks[-1] == seconds(1)
    assert len(looks) < 25
    await transaction.commit()
    assert await alice.claims(as_of=as_of) == [later]


async def test_an_open_storing_transaction_holds_up_no_other_stream(
    given: Given, alice: Worker, connect: Connect
) -> None:
    storer = await connect()
    async with asyncio.timeout(20), storer.transaction():
        await given.outbox(on=storer)
        (other,) = await given.outbox(stream="another")
        assert await alice.claims() == [other]


async def test_storers_of_one_stream_commit_in_the_order_of_their_versions(
    given: Given, alice: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    """The second storer waits for the first; otherwise its message could be handled before an earlier one."""
    one, two = await connect(), await connect()
    transaction = one.transaction()
    await transaction.start()
    (first,) = await given.outbox(on=one)
    waiting = asyncio.create_task(given.outbox(on=two))
    await until_somebody_waits(db)
    await transaction.commit()
    (second,) = await waiting
    assert await alice.claims() == [first, second]


async def test_a_message_scheduled_for_later_holds_its_stream_and_goes_when_it_is_due(alice: Worker) -> None:
    now, later, behind = outgoing(), outgoing(scheduled_for=T0 + minutes(1)), outgoing()
    await stores(alice, now, later, behind)
    (first,) = await alice.claims()
    assert first == as_claimed(now)
    await alice.reports(completion(first))
    assert await alice.claims(as_of=T0 + seconds(59)) == []
    assert await alice.claims(as_of=T0 + seconds(60)) == [as_claimed(later), as_claimed(behind)]


async def test_what_is_scheduled_for_later_and_what_follows_it_take_no_room_of_a_claim(alice: Worker) -> None:
    now, later = outgoing(), outgoing(scheduled_for=T0 + minutes(1))
    await stores(alice, now, later, *(outgoing() for _ in range(3)))
    one, two = outgoing(stream="another"), outgoing(stream="and another")
    await stores(alice, one)
    (first, second) = await alice.claims(limit=2)
    assert [first, second] == [as_claimed(now), as_claimed(one)]
    await alice.reports(completion(first))
    await stores(alice, two)
    assert await alice.claims(limit=2) == [as_claimed(two)]


async def test_streams_whose_heads_came_to_be_scheduled_for_later_take_no_room_of_a_claim(alice: Worker) -> None:
    for stream in map(str, range(10)):
        await stores(alice, outgoing(stream=stream), outgoing(stream=stream, scheduled_for=T0 + minutes(1)))
    await alice.reports(*map(completion, await alice.claims(limit=10)))
    one = outgoing(stream="another")
    await stores(alice, one)
    assert await alice.claims(limit=2) == [as_claimed(one)]


async def test_a_message_out_of_attempts_is_parked_though_one_behind_it_is_scheduled_for_later(
    join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    victim = join("victim", max_attempts=1)
    spent = outgoing()
    await stores(victim, spent, outgoing(), outgoing(scheduled_for=T0 + minutes(60)))
    await victim.claims()
    assert await join("alice", max_attempts=1).claims(as_of=T0 + minutes(11)) == []
    parked = await db.fetch("SELECT message_id FROM wh_outbox WHERE parked")
    assert [row["message_id"] for row in parked] == [spent.message_id]


async def test_a_scheduled_head_waits_without_being_tried(alice: Worker, db: asyncpg.Connection) -> None:
    message = outgoing(scheduled_for=T0 + minutes(1))
    await stores(alice, message)
    assert await alice.claims() == []
    row = await db.fetchrow("SELECT attempts, scheduled_for, instance_id FROM wh_outbox")
    assert row is not None
    assert tuple(row) == (0, T0 + minutes(1), None)
    assert await db.fetchval("SELECT ready_at FROM wh_active_streams") == T0 + minutes(1)
    assert await alice.claims(as_of=T0 + minutes(1)) == [as_claimed(message)]


async def test_a_message_without_a_stream_is_scheduled_alone(alice: Worker) -> None:
    later, now = outgoing(stream=None, scheduled_for=T0 + minutes(1)), outgoing(stream=None)
    await stores(alice, later, now)
    assert await alice.claims() == [as_claimed(now)]
    assert await alice.claims(as_of=T0 + minutes(1)) == [as_claimed(later)]


async def test_a_stream_key_and_the_uuid_it_spells_are_one_stream(alice: Worker, db: asyncpg.Connection) -> None:
    by_id, by_key = outgoing(stream=S), outgoing(stream=str(S))
    await stores(alice, by_id, by_key)
    assert await db.fetchval("SELECT array_agg(version ORDER BY version) FROM wh_outbox") == [1, 2]
    assert await alice.claims() == [as_claimed(by_id), as_claimed(by_key)]
