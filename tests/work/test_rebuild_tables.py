"""A perspective that writes by its own SQL, built again: into copies of its tables, which then take their place."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest

from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, checkpoints
from whippletree.dispatch.rebuild import Rebuilds
from whippletree.errors import InvalidSetting, UnknownName
from whippletree.store.transaction import Transaction

NAME = "report"
TABLES = ("public.orders_report", "changes")
factor = 1


async def report(event: OrderPlaced | OrderChanged, tx: Transaction) -> None:
    if isinstance(event, OrderPlaced):
        await tx.execute(
            "INSERT INTO orders_report VALUES ($1, $2, $3)", event.order_id, event.customer, factor * event.total
        )
    elif event.total < 0:
        raise ValueError("less than nothing")
    else:
        await tx.execute(
            "UPDATE orders_report SET total = $2 WHERE order_id = $1", event.order_id, factor * event.total
        )
        await tx.execute("INSERT INTO changes (order_id) VALUES ($1)", event.order_id)


async def careless(event: OrderPlaced | OrderChanged, tx: Transaction) -> None:
    await tx.execute("INSERT INTO public.changes (order_id) VALUES ($1)", event.order_id)


def stream(number: int) -> UUID:
    return UUID(int=S.int + number)


@pytest.fixture
async def shop(pool: Pool, db: asyncpg.Connection) -> Shop:
    await db.execute(
        """
        CREATE TABLE public.orders_report (order_id uuid PRIMARY KEY, customer text, total bigint CHECK (total < 9999));
        CREATE INDEX ON public.orders_report (customer);
        CREATE TABLE public.changes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id uuid);
        GRANT SELECT ON public.orders_report TO pg_monitor;
        """
    )
    return Shop(pool)


@pytest.fixture
def rebuilds(pool: Pool) -> Rebuilds:
    return Rebuilds(pool, patience=60)


async def totals(db: asyncpg.Connection) -> list[int]:
    return [row[0] for row in await db.fetch("SELECT total FROM public.orders_report ORDER BY order_id")]


async def schemas(db: asyncpg.Connection) -> int:
    return int(await db.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'wh\\_report\\_%'"))


async def test_what_a_changed_function_writes_takes_the_place_of_the_old_tables_and_gives_it_back(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.opens(report, tables=TABLES)
    for number in range(3):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", number), OrderChanged(stream(number), 10))
    await shop.catches_up()
    monkeypatch.setattr("tests.work.test_rebuild_tables.factor", 2)
    assert await rebuilds.start(NAME) == 2
    await shop.append(stream(0), OrderChanged(stream(0), 11))
    await shop.catches_up()
    assert await totals(db) == [22, 10, 10]
    found = {difference.kind: difference for difference in await rebuilds.compare(NAME)}
    assert {kind: difference.count for kind, difference in found.items()} == {
        # The changes have no key but the order in which they were written, so they are compared as a whole.
        "equal": 1 + 4,
        "changed": 2,
        "added": 0,
        "gone": 0,
    }
    assert found["changed"].samples[0]["key"] == f'orders_report {{"order_id": "{stream(1)}"}}'

    assert await rebuilds.swap(NAME) == 2
    assert await totals(db) == [22, 20, 20]
    await shop.append(stream(1), OrderChanged(stream(1), 13))
    await shop.catches_up()
    assert await totals(db) == [22, 26, 20]
    assert await db.fetchval("SELECT has_table_privilege('pg_monitor', 'public.orders_report', 'SELECT')")
    indexes = "SELECT count(*) FROM pg_indexes WHERE tablename = 'orders_report' AND schemaname = 'public'"
    assert await db.fetchval(indexes) == 2

    assert await rebuilds.undo(NAME) == 1
    assert await totals(db) == [22, 10, 10]
    await shop.catches_up()
    assert await totals(db) == [22, 26, 10]
    assert await db.fetchval("SELECT count(*) FROM public.changes") == 5
    assert await checkpoints(db, NAME) == [
        ("Completed", 2, None, None),
        *[("Completed", 3, None, None)] * 2,
    ]
    assert await rebuilds.forget(NAME) == 2
    assert await schemas(db) == 0
    assert await db.fetch("SELECT * FROM verify_events()") == []


async def test_two_instances_rebuild_while_events_flow_and_nothing_is_written_twice(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await shop.opens(report, tables=TABLES)
    for number in range(20):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", 0))
    changed = 0
    over = asyncio.Event()

    async def append() -> None:
        nonlocal changed
        while not over.is_set():
            changed += 1
            for number in range(20):
                await shop.append(stream(number), OrderChanged(stream(number), changed))

    async with shop.worker("alice", max_checkpoints=6).running(), shop.worker("bob", max_checkpoints=6).running():
        appending = asyncio.create_task(append())
        for _ in range(3):
            await rebuilds.start(NAME)
            await rebuilds.swap(NAME, behind=20)
        await rebuilds.undo(NAME)
        over.set()
        await appending
        for number in range(20):
            receipt = await shop.append(stream(number), OrderChanged(stream(number), changed + 1))
            await receipt.applied(NAME, timeout=60)
    assert await totals(db) == [changed + 1] * 20
    assert await db.fetchval("SELECT count(*) FROM public.changes") == 20 * (changed + 1)
    assert await db.fetch("SELECT * FROM verify_events()") == []


async def test_an_abandoned_rebuild_leaves_nothing(shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection) -> None:
    await shop.opens(report, tables=TABLES)
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await rebuilds.start(NAME)
    await shop.catches_up()
    assert await schemas(db) == 1
    await rebuilds.abandon(NAME)
    assert await schemas(db) == 0
    assert await totals(db) == [1]


async def test_a_rebuild_that_names_live_tables_with_their_schema_is_stopped_and_writes_nothing(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await shop.opens(careless, name=NAME, tables=["changes"])
    await shop.append(S, OrderPlaced(S, "Ada", 1), OrderChanged(S, 2))
    await shop.catches_up()
    await rebuilds.start(NAME)
    await shop.catches_up()
    assert await db.fetchval("SELECT count(*) FROM public.changes") == 2
    assert (await rebuilds.progress(NAME)).rebuild_parked == 1
    ((_, _, error, parked),) = await checkpoints(db, f"{NAME}@2")
    assert parked
    assert "name tables without their schema" in error


async def test_an_event_at_which_it_raises_stops_the_rebuild_of_its_stream_only(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await shop.opens(report, tables=TABLES)
    for number in range(2):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", 1), OrderChanged(stream(number), -number))
    await shop.catches_up()
    await rebuilds.start(NAME)
    await shop.catches_up()
    schema = await db.fetchval("SELECT generation_schema($1, 2)", NAME)
    assert await db.fetchval(f'SELECT array_agg(total ORDER BY order_id) FROM "{schema}".orders_report') == [0, 1]
    # The live tables are stuck there as well, so the swap takes nothing from readers.
    await rebuilds.swap(NAME)
    assert await totals(db) == [0, 1]


async def test_an_inline_one_writes_the_tables_that_are_live(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await shop.opens(report, tables=TABLES, inline=True)
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await rebuilds.start(NAME)
    await shop.append(S, OrderChanged(S, 2))
    assert await totals(db) == [2]
    await shop.catches_up()
    await rebuilds.swap(NAME)
    await shop.append(S, OrderChanged(S, 3))
    assert await totals(db) == [3]
    assert await db.fetchval("SELECT count(*) FROM public.changes") == 2


@pytest.mark.parametrize(
    ("hindrance", "told"),
    [
        ("CREATE VIEW public.big AS SELECT * FROM public.orders_report", "view public.big"),
        ("ALTER TABLE public.changes ADD FOREIGN KEY (order_id) REFERENCES public.orders_report", "foreign key"),
        ("ALTER TABLE public.changes ADD number serial", "use GENERATED"),
    ],
)
async def test_a_table_to_which_something_else_is_tied_is_refused(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection, hindrance: str, told: str
) -> None:
    await shop.opens(report, tables=TABLES)
    await db.execute(hindrance)
    with pytest.raises(InvalidSetting, match=told):
        await rebuilds.start(NAME)
    assert await schemas(db) == 0


async def test_tables_that_are_not_there_or_not_declared_are_refused(shop: Shop, rebuilds: Rebuilds) -> None:
    with pytest.raises(InvalidSetting, match="writes table nowhere, which is not there"):
        await shop.opens(report, tables=["nowhere"])
    with pytest.raises(InvalidSetting, match=r"write tables=\['orders_report'\]"):
        await shop.opens(report, tables="orders_report")
    with pytest.raises(InvalidSetting, match="is a fold"):
        await shop.opens(tables=["orders_report"])
    await shop.opens(report, name="silent")
    with pytest.raises(UnknownName, match=r"has to say which: @app\.perspective\(tables="):
        await rebuilds.start("silent")
