"""The inbox knows an id for as long as the retention says, for ever when it says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from tests.scenario import T0, Message, RowsWorker, completion, failure, seconds
from tests.waiting import until_somebody_waits
from whippletree.message.envelope import Queue
from whippletree.message.ids import MessageId
from whippletree.store.deduplication import forget_messages

Connect = Callable[[], Awaitable[asyncpg.Connection]]
DAY = timedelta(days=1)
WEEK = timedelta(days=7)


def an_id(number: int) -> UUID:
    """Ids in the order of their numbers, which is the order in which they are locked."""
    return UUID(int=0x5EED << 112 | number)


async def accept(db: asyncpg.Connection, *numbers: int, as_of: datetime = T0, body: str = "{}") -> list[str]:
    count = len(numbers)
    nothing = [None] * count
    outcomes: list[str] = await db.fetchval(
        "SELECT store_inbox($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        nothing,
        nothing,
        [an_id(number) for number in numbers],
        ["Happened"] * count,
        [""] * count,
        [body] * count,
        nothing,
        nothing,
        nothing,
        nothing,
        as_of,
    )
    return outcomes


async def forget(db: asyncpg.Connection, as_of: datetime, limit: int = 1000) -> int:
    return int(await db.fetchval("SELECT forget_messages($1, $2)", limit, as_of))


async def known(db: asyncpg.Connection) -> list[int]:
    rows = await db.fetch("SELECT message_id FROM wh_message_deduplication ORDER BY 1")
    return [row[0].int & 0xFFFF for row in rows]


@pytest.fixture
def worker(pool: asyncpg.Pool[asyncpg.Record]) -> RowsWorker:
    return RowsWorker(pool, "alice")


@pytest.fixture
async def retention(db: asyncpg.Connection) -> timedelta:
    await db.execute("SELECT change_deduplication_retention($1)", WEEK)
    return WEEK


async def handle_all(worker: RowsWorker, as_of: datetime = T0) -> None:
    """Claim and complete whatever waits in the inbox."""
    while claimed := await worker.claims(as_of=as_of, queue=Queue.INBOX):
        await worker.reports(*(completion(message) for message in claimed), as_of=as_of)


async def test_without_a_retention_nothing_is_ever_forgotten(db: asyncpg.Connection, worker: RowsWorker) -> None:
    await accept(db, 1)
    await handle_all(worker)
    assert await forget(db, T0 + 10_000 * DAY) == 0
    assert await accept(db, 1, as_of=T0 + 10_000 * DAY) == ["duplicate"]


async def test_an_id_is_known_to_the_end_of_the_retention_and_forgotten_after_it(
    db: asyncpg.Connection, worker: RowsWorker, retention: timedelta
) -> None:
    await accept(db, 1)
    await handle_all(worker)
    assert await forget(db, T0 + retention) == 0
    assert await accept(db, 1, as_of=T0 + retention) == ["duplicate"]
    assert await accept(db, 1, as_of=T0 + retention, body="[]") == ["conflict"]
    assert await forget(db, T0 + retention + seconds(1)) == 1
    assert await accept(db, 1, as_of=T0 + retention + seconds(1), body="[]") == ["stored"]


async def test_a_duplicate_does_not_make_an_id_younger(
    db: asyncpg.Connection, worker: RowsWorker, retention: timedelta
) -> None:
    await accept(db, 1)
    await handle_all(worker)
    assert await accept(db, 1, as_of=T0 + 6 * DAY) == ["duplicate"]
    assert await forget(db, T0 + 8 * DAY) == 1


async def test_the_id_of_a_message_that_still_waits_is_never_forgotten(
    db: asyncpg.Connection, worker: RowsWorker, retention: timedelta
) -> None:
    late = T0 + 100 * DAY
    await accept(db, 1, 2, 3)
    claimed = await worker.claims(queue=Queue.INBOX, limit=2)
    held, failed = sorted(claimed, key=lambda message: message.message_id)
    await worker.reports(failure(failed, retry_at=T0 + 1000 * DAY))
    assert await forget(db, late) == 0
    assert await accept(db, 1, 2, 3, as_of=late) == ["duplicate"] * 3

    await worker.reports(completion(held))
    assert await forget(db, late) == 1
    assert await known(db) == [2, 3]


async def test_what_waits_does_not_stand_in_the_way_of_what_can_be_forgotten(
    db: asyncpg.Connection, worker: RowsWorker, retention: timedelta
) -> None:
    await accept(db, 3, as_of=T0 + seconds(1))
    await handle_all(worker, T0 + seconds(1))
    await accept(db, 1, 2)
    assert await forget(db, T0 + 8 * DAY, limit=1) == 1
    assert await known(db) == [1, 2]


async def test_the_oldest_are_forgotten_first_and_no_more_than_asked_for(
    db: asyncpg.Connection, worker: RowsWorker, retention: timedelta
) -> None:
    for number in (3, 1, 4, 2):
        await accept(db, number, as_of=T0 + number * seconds(1))
    await handle_all(worker, T0 + seconds(5))
    assert await forget(db, T0 + 8 * DAY, limit=3) == 3
    assert await known(db) == [4]


async def test_forgetting_in_batches_goes_on_to_the_end(
    db: asyncpg.Connection, pool: asyncpg.Pool[asyncpg.Record], worker: RowsWorker
) -> None:
    ago = datetime.now(tz=T0.tzinfo) - 2 * DAY
    await db.execute("SELECT change_deduplication_retention($1)", DAY)
    await accept(db, *range(25), as_of=ago)
    await accept(db, 25, as_of=ago + 2 * DAY)
    await handle_all(worker, ago + 2 * DAY)
    assert await forget_messages(pool, batch=10) == 25
    assert await known(db) == [25]
    assert await forget_messages(pool, batch=10) == 0


async def test_storers_do_not_wait_for_those_who_forget(
    db: asyncpg.Connection, connect: Connect, worker: RowsWorker, retention: timedelta
) -> None:
    await accept(db, 1, 3)
    await accept(db, 2, as_of=T0 + 8 * DAY)
    await handle_all(worker, T0 + 8 * DAY)
    forgetful = await connect()
    async with forgetful.transaction():
        assert await forget(forgetful, T0 + 9 * DAY) == 2
        async with asyncio.timeout(30):
            assert await accept(db, 2, 4, as_of=T0 + 9 * DAY) == ["duplicate", "stored"]
            assert await forget(db, T0 + 9 * DAY) == 0, "one at a time; the other does not wait either"


async def test_whoever_stores_an_id_that_is_just_being_forgotten_waits_for_the_end_of_it(
    db: asyncpg.Connection, connect: Connect, worker: RowsWorker, retention: timedelta
) -> None:
    await accept(db, 1)
    await handle_all(worker)
    forgetful, storer = await connect(), await connect()
    transaction = forgetful.transaction()
    await transaction.start()
    assert await forget(forgetful, T0 + 8 * DAY) == 1
    storing = asyncio.create_task(accept(storer, 1, as_of=T0 + 8 * DAY))
    await until_somebody_waits(db)
    await transaction.rollback()
    assert await storing == ["duplicate"], "it was not forgotten after all"


async def test_an_id_forgotten_in_the_middle_of_a_call_is_new(
    db: asyncpg.Connection, connect: Connect, worker: RowsWorker, retention: timedelta
) -> None:
    """The call has seen the first id as known, and waits for the second one; then the first is forgotten."""
    await accept(db, 1)
    await handle_all(worker)
    other, storer = await connect(), await connect()
    transaction = other.transaction()
    await transaction.start()
    await accept(other, 2, as_of=T0 + 8 * DAY)
    storing = asyncio.create_task(accept(storer, 1, 2, 1, 3, as_of=T0 + 8 * DAY))
    await until_somebody_waits(db)
    assert await forget(db, T0 + 8 * DAY) == 1
    await transaction.commit()
    assert await storing == ["stored", "duplicate", "duplicate", "stored"]
    claimed = await worker.claims(as_of=T0 + 8 * DAY, queue=Queue.INBOX)
    assert set(claimed) == {Message(MessageId(an_id(number))) for number in (1, 2, 3)}


async def test_forgetting_nothing_writes_nothing(db: asyncpg.Connection, retention: timedelta) -> None:
    await accept(db, 1)
    async with db.transaction():
        assert await forget(db, T0 + 100 * DAY) == 0
        assert await db.fetchval("SELECT pg_current_xact_id_if_assigned()") is None


@pytest.mark.parametrize("retention", [timedelta(0), -DAY])
async def test_a_retention_is_longer_than_nothing(db: asyncpg.Connection, retention: timedelta) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await db.execute("SELECT change_deduplication_retention($1)", retention)
