"""All events in one order, numbered after commit. Each schedule here makes some usual rule lose or invert events."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.conftest import Connect, blank_database
from whippletree.errors import InvalidMessage
from whippletree.message.event import NewEvent, NumberedEvent
from whippletree.message.upcast import Upcasters
from whippletree.settings import Dsn
from whippletree.store.database import translated
from whippletree.store.event_store import EventStore
from whippletree.store.feed import Chosen, Feed

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
def store(pool: Pool) -> EventStore:
    return EventStore(pool)


@pytest.fixture
def feed(pool: Pool) -> Feed:
    return Feed(pool)


def event(name: str = "Happened") -> NewEvent:
    return NewEvent(event_type=name, payload="{}")


def told(events: list[NumberedEvent]) -> list[tuple[int, str]]:
    return [(numbered.number, numbered.event.event_type) for numbered in events]


@asynccontextmanager
async def opened(connection: asyncpg.Connection) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that has written already, and is committed at the end of the context."""
    async with connection.transaction():
        await connection.execute("SELECT pg_current_xact_id()")
        yield connection


async def test_events_of_all_streams_are_read_in_one_order(store: EventStore, feed: Feed) -> None:
    await store.append("a", [event("A1"), event("A2")])
    await store.append("b", [event("B1")])
    await store.append("a", [event("A3")])
    assert told(await feed.read_all()) == [(1, "A1"), (2, "A2"), (3, "B1"), (4, "A3")]
    assert told(await feed.read_all(after=2)) == [(3, "B1"), (4, "A3")]
    assert told(await feed.read_all(after=1, limit=2)) == [(2, "A2"), (3, "B1")]
    assert told(await feed.read_all(types=["B1", "A3"], limit=1)) == [(3, "B1")]
    assert told(await feed.read_all(types=[])) == []


async def test_a_pattern_chooses_the_types_that_it_matches(store: EventStore, feed: Feed) -> None:
    await store.append("a", [event("Shop.OrderPlaced"), event("ReorderPlaced"), event("Shop.Paid")])
    assert told(await feed.read_all(patterns=["OrderPlaced"])) == [(1, "Shop.OrderPlaced")]
    assert told(await feed.read_all(patterns=["Shop.*"], types=["ReorderPlaced"])) == [
        (1, "Shop.OrderPlaced"),
        (2, "ReorderPlaced"),
        (3, "Shop.Paid"),
    ]


async def test_a_late_commit_gets_a_later_number(store: EventStore, feed: Feed, connect: Connect) -> None:
    """Reading on from the highest position would never see the first event."""
    async with opened(await connect()) as slow:
        await store.append("a", [event("DrawnFirst")], on=slow)
        await store.append("b", [event("CommittedFirst")])
        assert told(await feed.read_all()) == [(1, "CommittedFirst")]
    assert told(await feed.read_all(after=1)) == [(2, "DrawnFirst")]


async def test_interleaved_appends_of_two_transactions_are_both_whole(
    store: EventStore, feed: Feed, connect: Connect
) -> None:
    """Waiting at a gap, or filtering by the oldest open transaction, loses one of these or stops before it."""
    one, two = await connect(), await connect()
    async with opened(one):
        await store.append("a", [event("A1")], on=one)
        async with opened(two):
            await store.append("b", [event("B1")], on=two)
            await store.append("a", [event("A2")], on=one)
            await store.append("b", [event("B2")], on=two)
        assert told(await feed.read_all()) == [(1, "B1"), (2, "B2")]
        await store.append("a", [event("A3")], on=one)
    assert told(await feed.read_all(after=2)) == [(3, "A1"), (4, "A2"), (5, "A3")]


async def test_a_business_write_before_the_append_does_not_invert_the_stream(
    store: EventStore, feed: Feed, connect: Connect
) -> None:
    """The transaction of the second event is older than that of the first: an order by transactions inverts them."""
    async with opened(await connect()) as older:
        await store.append("a", [event("First")])
        await store.append("a", [event("Second")], on=older)
    assert told(await feed.read_all()) == [(1, "First"), (2, "Second")]


async def test_a_writing_transaction_in_another_database_holds_up_nothing(
    store: EventStore, feed: Feed, server: str, dsn: Dsn
) -> None:
    async with blank_database(server, "the other database") as other:
        idle = await asyncpg.connect(other.reveal())
        async with opened(idle):
            await store.append("a", [event("Meanwhile")])
            assert told(await feed.read_all()) == [(1, "Meanwhile")]
        await idle.close()
    await store.append("a", [event("After")])
    assert told(await feed.read_all(after=1)) == [(2, "After")]


async def test_a_prepared_transaction_left_behind_holds_up_nothing(
    store: EventStore, feed: Feed, connect: Connect, db: asyncpg.Connection
) -> None:
    if int(await db.fetchval("SHOW max_prepared_transactions")) == 0:
        pytest.skip("the server of WHIPPLETREE_TEST_DSN has max_prepared_transactions = 0; the embedded one has more")
    name, connection = f"left-{uuid4()}", await connect()
    await connection.execute("BEGIN")
    await store.append("a", [event("Prepared")], on=connection)
    await connection.execute(f"PREPARE TRANSACTION '{name}'")
    await store.append("b", [event("Meanwhile")])
    assert told(await feed.read_all()) == [(1, "Meanwhile")]
    await db.execute(f"COMMIT PREPARED '{name}'")
    assert told(await feed.read_all()) == [(1, "Meanwhile"), (2, "Prepared")]


async def test_what_is_rolled_back_leaves_no_gap(store: EventStore, feed: Feed, connect: Connect) -> None:
    connection = await connect()
    async with connection.transaction():
        part = connection.transaction()
        await part.start()
        await store.append("a", [event("Undone")], on=connection)
        await part.rollback()
        async with connection.transaction():
            await store.append("a", [event("Kept")], on=connection)
    undone = connection.transaction()
    await undone.start()
    await store.append("b", [event("Undone")], on=connection)
    assert told(await feed.read_all()) == [(1, "Kept")]
    await undone.rollback()
    await store.append("b", [event("Next")])
    assert told(await feed.read_all()) == [(1, "Kept"), (2, "Next")]


async def test_a_numbering_that_is_cut_off_leaves_no_gap(store: EventStore, feed: Feed, connect: Connect) -> None:
    await store.append("a", [event("A1"), event("A2")])
    connection = await connect()
    broken = connection.transaction()
    await broken.start()
    assert await connection.fetchval("SELECT number_events()") == 2
    await broken.rollback()
    assert [numbered.number for numbered in await feed.read_all()] == [1, 2]


async def test_a_reader_takes_what_has_a_number_while_another_session_numbers(
    store: EventStore, feed: Feed, connect: Connect
) -> None:
    await store.append("a", [event("A1")])
    assert await feed.last_number() == 1
    connection = await connect()
    async with connection.transaction():
        await store.append("a", [event("A2")])
        assert await connection.fetchval("SELECT number_events()") == 2
        assert told(await feed.read_all()) == [(1, "A1")]
    assert told(await feed.read_all()) == [(1, "A1"), (2, "A2")]


async def test_events_that_are_not_committed_get_no_number(store: EventStore, feed: Feed, connect: Connect) -> None:
    connection = await connect()
    async with connection.transaction():
        await store.append("a", [event()], on=connection)
        with pytest.raises(InvalidMessage, match="in a transaction of their own"), translated():
            await connection.fetchval("SELECT number_events()")
    assert len(await feed.read_all()) == 0, "the error has undone the append"
    async with connection.transaction(isolation="repeatable_read"):
        with pytest.raises(InvalidMessage, match="READ COMMITTED"), translated():
            await connection.fetchval("SELECT number_events()")


async def test_writers_do_not_wait_for_a_numbering(store: EventStore, connect: Connect) -> None:
    connection = await connect()
    await store.append("a", [event()])
    async with connection.transaction():
        assert await connection.fetchval("SELECT number_events()") == 1
        async with asyncio.timeout(30):
            assert (await store.append("a", [event()])).versions == (2,)


async def test_the_feed_is_followed_live(store: EventStore, feed: Feed) -> None:
    await store.append("a", [event("A1")])
    appended = iter([event("A2"), event("A3")])

    async def wait() -> None:
        await store.append("a", [next(appended)])

    seen = []
    async for numbered in feed.follow(wait=wait):
        seen.append(numbered)
        if len(seen) == 3:
            break
    assert told(seen) == [(1, "A1"), (2, "A2"), (3, "A3")]


async def test_old_shapes_are_lifted(pool: Pool, store: EventStore) -> None:
    upcasters = Upcasters()
    upcasters.add("OrderMade", 1, lambda value: value, becomes="OrderPlaced")
    await store.append("a", [event("OrderMade")])
    assert told(await Feed(pool, upcasters=upcasters).read_all()) == [(1, "OrderPlaced")]


async def test_a_database_restored_on_another_server_goes_on_without_loss(
    store: EventStore, feed: Feed, db: asyncpg.Connection, connect: Connect
) -> None:
    """Transaction ids begin again there, far below those that the restored events bear."""
    await store.append("a", [event("Numbered")])
    assert await feed.last_number() == 1
    await store.append("a", [event("NotYet")])
    await db.execute("UPDATE wh_event_store SET arrival = arrival + 1000000000")
    await db.execute("UPDATE wh_event_sequence SET seen_below = seen_below + 1000000000")
    await db.execute("UPDATE wh_settings SET server_id = server_id + 1")
    await store.append("b", [event("AfterRestore")])
    connection = await connect()
    async with connection.transaction():
        await store.append("c", [event("Open")], on=connection)
        assert told(await feed.read_all()) == [(1, "Numbered")], "the open append may know the old base only"
    assert told(await feed.read_all()) == [(1, "Numbered"), (2, "NotYet"), (3, "AfterRestore"), (4, "Open")]
    for number in range(5, 9):
        async with opened(connection):
            await store.append("d", [event("New")], on=connection)
        assert await feed.last_number() == number


async def test_a_restored_database_numbers_what_comes_though_other_transactions_had_come_after_its_last_event(
    store: EventStore, feed: Feed, db: asyncpg.Connection
) -> None:
    """What was seen reaches further than the last event, and nothing waits for a number when it is restored."""
    await store.append("a", [event("Numbered")])
    assert await feed.last_number() == 1
    await db.execute("UPDATE wh_event_sequence SET seen_below = seen_below + 1000000000")
    await db.execute("UPDATE wh_settings SET server_id = server_id + 1")
    assert await feed.last_number() == 1
    await store.append("a", [event("AfterRestore")])
    assert told(await feed.read_all()) == [(1, "Numbered"), (2, "AfterRestore")]


async def test_a_reader_does_not_pass_numbers_that_are_not_given_out_yet(store: EventStore, feed: Feed) -> None:
    """It was told of them by a server that another has replaced, which did not get the last events."""
    await store.append("a", [event("A1"), event("A2")])
    assert await feed.last_number() == 2
    for chosen in (Chosen(), Chosen(types=["A1"]), Chosen(types=["other"])):
        assert (await feed.page(0, 10, chosen, 100)).through == 2
        assert (await feed.page(2, 10, chosen, 100)).through == 2
    assert (await feed.page(5, 10, Chosen(), 100)).through == 5
    assert (await feed.page(0, 1, Chosen(), 100)).through == 1
    assert (await feed.page(0, 10, Chosen(), 1)).through == 1


async def test_hundreds_of_overlapping_writers_lose_and_invert_nothing(
    dsn: Dsn, pool: Pool, store: EventStore, feed: Feed
) -> None:
    """Their transactions stay open for random times and hold several streams; readers number all the while."""
    rng = random.Random(5)
    streams = [UUID(int=number + 1) for number in range(40)]
    # A type that nobody has committed yet makes its writers wait for each other, in whatever order they hold streams.
    await store.append("first", [event()])
    appended = 1
    done = asyncio.Event()
    seen: list[NumberedEvent] = []

    async def writer(connection: asyncpg.Connection) -> None:
        nonlocal appended
        for _ in range(4):
            chosen = sorted(rng.sample(streams, rng.randint(1, 3)))
            transaction = connection.transaction()
            await transaction.start()
            count = 0
            for stream in chosen:
                batch = [event() for _ in range(rng.randint(1, 3))]
                await store.append(stream, batch, on=connection)
                count += len(batch)
                for _ in range(rng.randint(0, 3)):
                    await connection.fetchval("SELECT count(*) FROM wh_streams")
            if rng.random() < 0.2:
                await transaction.rollback()
            else:
                await transaction.commit()
                appended += count

    async def reader() -> None:
        finished = False
        while not finished:
            finished = done.is_set()
            seen.extend(await feed.read_all(after=seen[-1].number if seen else 0))

    async def other_numberer() -> None:
        while not done.is_set():
            await feed.last_number()

    async with asyncpg.create_pool(dsn.reveal(), min_size=0, max_size=120) as connections:
        readers = [asyncio.create_task(work()) for work in (reader, other_numberer)]

        async def borrow() -> None:
            async with connections.acquire() as connection:
                await writer(connection)  # type: ignore[arg-type]  # a pool's proxy behaves as the connection

        await asyncio.gather(*(borrow() for _ in range(240)))
        done.set()
        await asyncio.gather(*readers)

    assert [numbered.number for numbered in seen] == list(range(1, appended + 1)), "none skipped, none twice"
    for stream in streams:
        versions = [numbered.event.version for numbered in seen if numbered.event.stream_id == stream]
        assert versions == list(range(1, len(versions) + 1)), "none inverted"


async def test_numbering_reads_no_more_while_an_old_snapshot_is_open(
    store: EventStore, feed: Feed, connect: Connect, dsn: Dsn
) -> None:
    """What finished work leaves behind cannot be cleared away under an old snapshot: so it leaves nothing behind."""
    old = await connect()
    async with old.transaction(isolation="repeatable_read", readonly=True):
        await old.fetchval("SELECT count(*) FROM wh_event_store")
        await store.append("a", [event()])
        first = await buffers_of_one_numbering(connect, store)
        for _ in range(150):
            await store.append("a", [event()])
            await feed.last_number()
        last = await buffers_of_one_numbering(connect, store)
    assert last <= 1.5 * first + 10


async def buffers_of_one_numbering(connect: Connect, store: EventStore) -> int:
    connection = await connect()
    for _ in range(2):
        await store.append("b", [event()])
        plan = await connection.fetch("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT number_events()")
        found = json.loads(plan[0][0])[0]["Plan"]
    return int(found["Shared Hit Blocks"]) + int(found["Shared Read Blocks"])
