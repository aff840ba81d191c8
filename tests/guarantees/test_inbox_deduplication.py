"""A message id is accepted once by the inbox, for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg

from tests.guarantees.storing import as_claimed, received, stores
from tests.scenario import T0, Worker, completion
from tests.waiting import how_many_wait, until, until_somebody_waits
from whippletree.message.envelope import InboxMessage, Queue
from whippletree.message.ids import new_message_id

Connect = Callable[[], Awaitable[asyncpg.Connection]]


async def test_a_duplicate_inbox_message_is_reported_and_not_stored(alice: Worker, db: asyncpg.Connection) -> None:
    message = received()
    assert (await stores(alice, message)).outcomes == ["stored"]
    assert (await stores(alice, message)).outcomes == ["duplicate"]
    assert await alice.claims(queue=Queue.INBOX) == [as_claimed(message)]
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 1


async def test_a_duplicate_is_known_long_after_the_message_was_handled(alice: Worker, db: asyncpg.Connection) -> None:
    message = received()
    await stores(alice, message)
    (claimed,) = await alice.claims(queue=Queue.INBOX)
    await alice.reports(completion(claimed))
    assert (await stores(alice, message)).outcomes == ["duplicate"]
    assert await alice.claims(queue=Queue.INBOX) == []
    first_seen = await db.fetchrow("SELECT message_id, first_seen_at FROM wh_message_deduplication")
    assert first_seen is not None
    assert tuple(first_seen) == (message.message_id, T0)


async def test_the_same_id_with_another_body_is_a_conflict(alice: Worker) -> None:
    message = received(payload='{"total": 1}')
    other_body = received(message_id=message.message_id, payload='{"total": 2}')
    other_type = received(message_id=message.message_id, payload='{"total": 1}', message_type="Else")
    await stores(alice, message)
    assert (await stores(alice, other_body)).outcomes == ["conflict"]
    assert (await stores(alice, other_type)).outcomes == ["conflict"]
    assert await alice.claims(queue=Queue.INBOX) == [as_claimed(message)]


async def test_every_message_of_a_batch_has_its_own_result(alice: Worker) -> None:
    old, new, newer = received(), received(), received(stream=None)
    await stores(alice, old)
    changed = received(message_id=old.message_id, payload="[]")
    assert (await stores(alice, new, old, changed, newer)).outcomes == ["stored", "duplicate", "conflict", "stored"]
    claimed = await alice.claims(queue=Queue.INBOX)
    assert set(claimed) == {as_claimed(old), as_claimed(new), as_claimed(newer)}


async def test_the_same_id_twice_in_one_call_is_stored_once(alice: Worker, db: asyncpg.Connection) -> None:
    message = received()
    assert (await stores(alice, message, message)).outcomes == ["stored", "duplicate"]
    assert await db.fetchval("SELECT array_agg(version) FROM wh_inbox") == [1]


async def test_a_duplicate_takes_no_version_from_its_stream(alice: Worker, db: asyncpg.Connection) -> None:
    first, second = received(), received()
    await stores(alice, first)
    await stores(alice, first, second)
    assert await db.fetchval("SELECT array_agg(version ORDER BY version) FROM wh_inbox") == [1, 2]


async def test_an_id_whose_storer_rolled_back_is_accepted(alice: Worker, db: asyncpg.Connection) -> None:
    message = received()
    transaction = db.transaction()
    await transaction.start()
    await db.execute(_INSERT, message.message_id)
    await transaction.rollback()
    assert (await stores(alice, message)).outcomes == ["stored"]


async def test_of_two_who_store_one_id_at_once_one_is_first(
    alice: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    """The second waits for the first, and then knows."""
    message = received(payload='{"a": 1}', stream=None)
    other = await connect()
    transaction = other.transaction()
    await transaction.start()
    await other.execute(_INSERT, message.message_id)
    second = asyncio.create_task(stores(alice, message))
    await until_somebody_waits(db)
    await transaction.commit()
    assert (await second).outcomes == ["duplicate"]


async def test_two_who_store_the_same_ids_in_opposite_order_do_not_wait_for_each_other(
    alice: Worker, bob: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    """The one in the middle is held until both have begun, so that each would have got what the other needs."""
    low, middle, high = sorted((received(stream=None) for _ in range(3)), key=lambda message: message.message_id)
    holder = await connect()
    transaction = holder.transaction()
    async with asyncio.timeout(60):
        await transaction.start()
        await holder.execute(_INSERT, middle.message_id)
        one = asyncio.create_task(stores(alice, low, middle, high))
        await until(lambda: _waiting(db, 1))
        other = asyncio.create_task(stores(bob, high, middle, low))
        await until(lambda: _waiting(db, 2))
        await transaction.rollback()
        assert (await one).outcomes == ["stored"] * 3
        assert (await other).outcomes == ["duplicate"] * 3


async def _waiting(db: asyncpg.Connection, count: int) -> bool:
    return await how_many_wait(db) == count


async def test_outbox_and_inbox_know_nothing_of_each_others_ids(alice: Worker, db: asyncpg.Connection) -> None:
    """A service may receive what it has sent."""
    message = received()
    await db.execute(_INSERT.replace("wh_inbox", "wh_outbox"), message.message_id)
    assert (await stores(alice, message)).outcomes == ["stored"]


async def test_inserting_a_duplicate_is_silent_and_a_conflict_is_an_error(db: asyncpg.Connection) -> None:
    message_id = new_message_id()
    assert await db.execute(_INSERT, message_id) == "INSERT 0 1"
    assert await db.execute(_INSERT, message_id) == "INSERT 0 0"
    try:
        await db.execute(_INSERT.replace('{"a": 1}', "[]"), message_id)
    except asyncpg.PostgresError as error:
        assert error.sqlstate == "WH004"
        assert "another body" in str(error)
    else:
        raise AssertionError("a conflict was accepted")
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 1


def test_an_inbox_message_always_has_its_senders_id() -> None:
    assert "message_id" in InboxMessage.__struct_fields__[: -len(InboxMessage.__struct_defaults__)]


_INSERT = """INSERT INTO wh_inbox (message_id, message_type, payload) VALUES ($1, 'Happened', '{"a": 1}')"""
