"""One stream of a perspective that writes by its own SQL: cleared, and written again from its first event on."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest

from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, checkpoints
from tests.waiting import until, until_somebody_waits
from whippletree.dispatch.replay import Replays
from whippletree.errors import InvalidSetting, PerspectiveFailed, UsageError
from whippletree.store.transaction import Transaction

NAME = "report"
TABLES = ("report_rows", "report_changes")
OTHER = UUID(int=S.int + 1)
limit = 1_000
cleared: list[UUID | str] = []
standing = asyncio.Event()
going = asyncio.Event()


async def report(event: OrderPlaced | OrderChanged, tx: Transaction) -> None:
    if event.total > limit:
        raise ValueError("too much")
    if isinstance(event, OrderPlaced):
        await tx.execute("INSERT INTO report_rows VALUES ($1, $2)", event.order_id, event.total)
        return
    await tx.execute("UPDATE report_rows SET total = $2 WHERE order_id = $1", event.order_id, event.total)
    await tx.execute("INSERT INTO report_changes (order_id, total) VALUES ($1, $2)", event.order_id, event.total)
    if event.total == 77 and not going.is_set():
        standing.set()
        await going.wait()


async def clear(stream: UUID | str, tx: Transaction) -> None:
    cleared.append(stream)
    for table in TABLES:
        await tx.execute(f"DELETE FROM {table} WHERE order_id = stream_id_of($1)", str(stream))


@pytest.fixture
async def shop(pool: Pool, db: asyncpg.Connection) -> Shop:
    await db.execute(
        """
        CREATE TABLE public.report_rows (order_id uuid PRIMARY KEY, total bigint);
        CREATE TABLE public.report_changes (id bigint GENERATED ALWAYS AS IDENTITY, order_id uuid, total bigint);
        CREATE FUNCTION public.stream_id_of(text) RETURNS uuid LANGUAGE sql RETURN whippletree.stream_id_of($1);
        """
    )
    cleared.clear()
    standing.clear()
    going.clear()
    return Shop(pool)


async def written(db: asyncpg.Connection, stream: UUID) -> tuple[int, list[int]]:
    """The total of a stream, and its changes in order."""
    changes = await db.fetch("SELECT total FROM public.report_changes WHERE order_id = $1 ORDER BY id", stream)
    total = await db.fetchval("SELECT total FROM public.report_rows WHERE order_id = $1", stream)
    return total, [row[0] for row in changes]


async def spoil(db: asyncpg.Connection) -> None:
    await db.execute("UPDATE public.report_rows SET total = 900; DELETE FROM public.report_changes WHERE total = 2")


async def test_one_stream_is_cleared_and_written_again_and_the_others_are_left(
    shop: Shop, db: asyncpg.Connection
) -> None:
    await shop.opens(report, tables=TABLES, clear=clear)
    changes = list(range(2, 1_000)) * 2
    for stream in (S, OTHER):
        await shop.append(stream, OrderPlaced(stream, "Ada", 1), *(OrderChanged(stream, total) for total in changes))
    going.set()
    await shop.catches_up()
    await spoil(db)
    await Replays(shop.folder, shop.pool).rebuild_stream(NAME, S)
    assert cleared == [S]
    assert await written(db, S) == (999, changes)
    assert (await written(db, OTHER))[0] == 900
    assert await checkpoints(db, NAME) == [("Completed", 1 + len(changes), None, None)] * 2
    await shop.append(S, OrderChanged(S, 5))
    await shop.catches_up()
    assert await written(db, S) == (5, [*changes, 5])
    assert await db.fetch("SELECT * FROM verify_events()") == []


async def test_a_stream_with_a_text_key_is_cleared_by_that_key_and_a_parked_one_goes_on(
    shop: Shop, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.opens(report, tables=TABLES, clear=clear)
    stream = await db.fetchval("SELECT stream_id_of('order-17')")
    await shop.append("order-17", OrderPlaced(stream, "Ada", 1), OrderChanged(stream, 2_000), OrderChanged(stream, 3))
    await shop.catches_up()
    replays = Replays(shop.folder, shop.pool)
    before = await checkpoints(db, NAME)
    assert before[0][0] == "Failed"
    with pytest.raises(PerspectiveFailed, match=r"report cannot write stream order-17: event 2: ValueError: too much"):
        await replays.rebuild_stream(NAME, "order-17")
    assert await written(db, stream) == (1, [])
    assert await checkpoints(db, NAME) == before
    monkeypatch.setattr("tests.dispatch.test_rewrite.limit", 5_000)
    await replays.rebuild_stream(NAME, "order-17")
    assert await written(db, stream) == (3, [2_000, 3])
    assert cleared == ["order-17", "order-17"]
    assert await checkpoints(db, NAME) == [("Completed", 3, None, None)]


async def test_whoever_is_in_the_middle_of_the_stream_is_let_through_and_nothing_is_written_twice(
    shop: Shop, db: asyncpg.Connection
) -> None:
    await shop.opens(report, tables=TABLES, clear=clear)
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    async with shop.worker().running():
        await until(lambda: db.fetchval("SELECT count(*) FROM public.report_rows"))
        await spoil(db)
        # It has changed the row, and has not committed.
        receipt = await shop.append(S, OrderChanged(S, 77))
        await asyncio.wait_for(standing.wait(), 60)
        rebuilding = asyncio.create_task(Replays(shop.folder, shop.pool).rebuild_stream(NAME, S))
        await until_somebody_waits(db)
        going.set()
        await asyncio.wait_for(rebuilding, 60)
        await receipt.applied(NAME, timeout=60)
        assert await written(db, S) == (77, [77])
        await (await shop.append(S, OrderChanged(S, 78))).applied(NAME, timeout=60)
    assert await written(db, S) == (78, [77, 78])


async def test_rewriting_a_stream_while_it_is_written_and_worked_loses_nothing_and_writes_nothing_twice(
    shop: Shop, db: asyncpg.Connection
) -> None:
    going.set()
    await shop.opens(report, tables=TABLES, clear=clear)
    await shop.append(S, OrderPlaced(S, "Ada", 0))
    replays = Replays(shop.folder, shop.pool)
    await shop.changes_while(NAME, lambda: replays.rebuild_stream(NAME, S))
    assert await written(db, S) == (40, list(range(1, 41)))
    assert await db.fetch("SELECT * FROM verify_events()") == []


async def test_one_that_does_not_say_how_a_stream_is_cleared_is_refused(shop: Shop) -> None:
    await shop.opens(report, tables=TABLES)
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    with pytest.raises(UsageError, match=r"say how that is removed, @app\.perspective\(clear=…\)"):
        await Replays(shop.folder, shop.pool).rebuild_stream(NAME, S)
    with pytest.raises(InvalidSetting, match=r"write async def clear\(stream"):
        await shop.opens(report, name="other", tables=TABLES, clear=lambda stream, tx: None)
    with pytest.raises(InvalidSetting, match="is a fold"):
        await shop.opens(clear=clear)


async def test_a_clear_that_raises_changes_nothing(shop: Shop, db: asyncpg.Connection) -> None:
    async def broken(stream: UUID | str, tx: Transaction) -> None:
        await clear(stream, tx)
        raise KeyError("lost")

    await shop.opens(report, tables=TABLES, clear=broken)
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await shop.catches_up()
    with pytest.raises(PerspectiveFailed, match=r"report cannot clear stream .*: KeyError"):
        await Replays(shop.folder, shop.pool).rebuild_stream(NAME, S)
    assert await written(db, S) == (1, [])
