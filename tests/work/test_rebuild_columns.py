"""A declared column that is defined anew: true of the rows after a rebuild, and gone again after its undo."""

from __future__ import annotations

import asyncpg
import pytest

from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, Summary
from whippletree.dispatch.rebuild import Rebuilds
from whippletree.errors import InvalidSetting

NAME = "order_summary"
BEFORE = {"customer": "customer", "amount": "total"}
AFTER = {"customer": "customer", "amount": "customer", "changes": "changes"}


@pytest.fixture
def rebuilds(pool: Pool) -> Rebuilds:
    return Rebuilds(pool)


async def given(pool: Pool) -> Shop:
    shop = Shop(pool)
    await shop.opens(columns=BEFORE, indexes=["amount"])
    await shop.append(S, OrderPlaced(S, "Ada", 7), OrderChanged(S, 8))
    await shop.catches_up()
    return shop


async def type_of(db: asyncpg.Connection, column: str) -> str:
    found = await db.fetchval(
        "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2",
        f"wh_rows_{NAME}",
        column,
    )
    return str(found)


async def test_a_rebuild_gives_a_column_its_new_definition_and_undo_the_old_one(
    pool: Pool, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    before = await given(pool)
    old = before.rows(before.perspectives[0])
    shop = Shop(pool)
    rows = await shop.opens(columns=AFTER, indexes=["amount"])
    # What is only new is there at once.
    assert await rows.find(changes=1) == [Summary("Ada", 8, 1)]
    await rebuilds.start(NAME)
    await shop.catches_up()
    assert await type_of(db, "amount") == "bigint"
    await rebuilds.swap(NAME)
    assert await rows.find(amount="Ada", changes=1) == [Summary("Ada", 8, 1)]
    assert await type_of(db, "amount") == "text"
    with pytest.raises(InvalidSetting, match="column amount by another definition"):
        await old.find(amount=8)
    await rebuilds.undo(NAME)
    assert await type_of(db, "amount") == "bigint"
    assert await old.find(amount=8) == [Summary("Ada", 8, 1)]
    await rebuilds.undo(NAME)
    assert await rows.find(amount="Ada") == [Summary("Ada", 8, 1)]


async def test_rights_on_the_view_survive_a_column_of_another_type(
    pool: Pool, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await given(pool)
    await db.execute(
        f"GRANT SELECT ON wh_rows_{NAME} TO pg_monitor WITH GRANT OPTION; GRANT SELECT ON wh_rows_{NAME} TO PUBLIC"
    )
    acl = "SELECT array_agg(a::text ORDER BY 1) FROM pg_class c, unnest(c.relacl) a WHERE c.oid = $1::regclass"
    granted = await db.fetchval(acl, f"wh_rows_{NAME}")
    shop = Shop(pool)
    await shop.opens(columns=AFTER)
    await rebuilds.start(NAME)
    await shop.catches_up()
    await rebuilds.swap(NAME)
    assert await type_of(db, "amount") == "text"
    assert await db.fetchval(acl, f"wh_rows_{NAME}") == granted


async def test_a_view_of_somebody_else_keeps_a_column_of_another_type_from_being_swapped(
    pool: Pool, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await given(pool)
    await db.execute(f"CREATE VIEW big_orders AS SELECT * FROM wh_rows_{NAME} WHERE amount > 5")
    shop = Shop(pool)
    rows = await shop.opens(columns=AFTER)
    await rebuilds.start(NAME)
    await shop.catches_up()
    with pytest.raises(InvalidSetting, match=r"its view is used: view big_orders depends .* Drop what uses it"):
        await rebuilds.swap(NAME)
    assert await db.fetchval("SELECT count(*) FROM big_orders") == 1
    await db.execute("DROP VIEW big_orders")
    await rebuilds.swap(NAME)
    assert await rows.find(amount="Ada") == [Summary("Ada", 8, 1)]
