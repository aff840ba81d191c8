"""A perspective's rows: a table of its own, made at start-up by any number of instances, read by key or by column."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest

from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, Summary, order_summary
from whippletree.dispatch.rows import Rows, register_perspective
from whippletree.errors import InvalidSetting, UsageError

LONG = "a" * 100


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


async def test_many_instances_make_the_same_rows_at_once(shop: Shop, db: asyncpg.Connection) -> None:
    perspective = shop.define(order_summary, columns=["customer", "total"], indexes=["customer"])
    await asyncio.gather(*(register_perspective(perspective, shop.pool) for _ in range(6)))
    indexes = await db.fetch("SELECT indexdef FROM pg_indexes WHERE tablename = 'wh_rows_order_summary_g1'")
    assert len(indexes) == 2
    assert await db.fetchval("SELECT live_generation FROM wh_perspectives") == 1


async def test_rows_are_found_by_their_declared_columns(shop: Shop) -> None:
    rows = await shop.opens(columns={"customer": "customer", "total": "total", "city": "address.city"})
    for number, customer in enumerate(("Ada", "Bob", "Ada")):
        stream = UUID(int=S.int + number)
        await shop.append(stream, OrderPlaced(stream, customer, number))
    await shop.catches_up()
    assert await rows.find(customer="Ada") == [Summary("Ada", 0), Summary("Ada", 2)]
    assert await rows.find(customer="Ada", total=2) == [Summary("Ada", 2)]
    assert len(await rows.find(city=None)) == 3
    assert await rows.find(limit=1, after=S) == [Summary("Bob", 1)]
    with pytest.raises(UsageError, match="has no column colour; it has customer, total, city"):
        await rows.find(colour="red")


async def test_an_index_is_used(shop: Shop, db: asyncpg.Connection) -> None:
    await shop.opens(columns=["customer"], indexes=["customer"])
    await db.execute("SET enable_seqscan = off")
    plan = await db.fetch("EXPLAIN SELECT * FROM wh_rows_order_summary WHERE customer = 'Ada'")
    assert any("Index Cond: (customer = 'Ada'::text)" in row[0] for row in plan)


async def test_a_new_column_is_true_of_the_rows_that_are_there(shop: Shop, db: asyncpg.Connection) -> None:
    await shop.opens(columns=["customer"])
    await shop.append(S, OrderPlaced(S, "Ada", 7))
    await shop.catches_up()
    later = Shop(shop.pool)
    rows = await later.opens(columns=["total", "customer"], indexes=[("customer", "total")])
    assert await rows.find(total=7) == [Summary("Ada", 7)]
    row = await db.fetchrow("SELECT customer, total FROM wh_rows_order_summary")
    assert row is not None
    assert tuple(row) == ("Ada", 7)
    # The older program is still running, and its rows have the new column too.
    await shop.append(S, OrderChanged(S, 8))
    await shop.catches_up()
    assert await rows.find(total=8) == [Summary("Ada", 8, 1)]
    older = Shop(shop.pool)
    assert await (await older.opens(columns=["customer"])).find(customer="Ada") == [Summary("Ada", 8, 1)]


async def test_a_column_that_is_defined_anew_is_not_searched_by_before_the_rows_are_rebuilt(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    before = await shop.opens(columns=["customer", "total"])
    await shop.append(S, OrderPlaced(S, "Ada", 7))
    await shop.catches_up()
    rows = await Shop(shop.pool).opens(columns={"customer": "customer", "total": "changes"})
    assert "order_summary declares total otherwise than its rows have it" in caplog.text
    assert await rows.find(customer="Ada") == [Summary("Ada", 7)]
    with pytest.raises(InvalidSetting, match=r"column total by another definition\. Rebuild them"):
        await rows.find(total=0)
    assert await before.find(total=7) == [Summary("Ada", 7)]


async def test_another_kind_of_key_is_refused(shop: Shop) -> None:
    await shop.opens()
    with pytest.raises(InvalidSetting, match="another kind of key"):
        await Shop(shop.pool).opens(key=lambda event: str(event.order_id))


async def test_names_as_long_as_can_be_have_tables_of_their_own(shop: Shop, db: asyncpg.Connection) -> None:
    await shop.opens(name=LONG)
    await shop.opens(name=LONG[:-1] + "b")
    tables = await db.fetch("SELECT tablename FROM pg_tables WHERE tablename LIKE 'wh_rows_%' ORDER BY 1")
    assert len(tables) == 2
    assert {len(row[0]) for row in tables} == {51}


async def test_one_that_chooses_its_keys_is_not_run_stream_by_stream(shop: Shop) -> None:
    await shop.opens(key=lambda event: str(event.order_id))
    with pytest.raises(UsageError, match="in the order of their commits"):
        assert shop.folder


async def test_a_row_that_its_type_no_longer_fits_asks_for_a_rebuild(shop: Shop, db: asyncpg.Connection) -> None:
    await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 7))
    await shop.catches_up()
    await db.execute("UPDATE wh_rows_order_summary_g1 SET row = '{}'")
    await shop.append(S, OrderChanged(S, 8))
    await shop.catches_up()
    query = "SELECT error FROM wh_perspective_checkpoints WHERE parked"
    assert "its row cannot be read, rebuild the perspective" in await db.fetchval(query)


async def test_rows_of_a_hand_written_one_are_its_own_affair(shop: Shop) -> None:
    from tests.dispatch.test_perspective import written

    with pytest.raises(UsageError, match="writes its own tables"):
        Rows(shop.define(written), shop.pool)
