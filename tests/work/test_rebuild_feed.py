"""A perspective that chooses its keys, built again: the feed is followed a second time, beside the live rows."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

from tests.accounts import Account, Bought, Pool, Shop, account
from tests.waiting import until
from tests.work.following import row, running
from whippletree.dispatch.rebuild import Rebuilds
from whippletree.errors import NotApplied
from whippletree.settings import Dsn

NAME = "account"
CUSTOMERS = ("Ada", "Bob", "Eve")


def doubled(row: Account | None, event: Bought) -> Account:
    if event.total < 0:
        raise ValueError("less than nothing")
    row = row or Account((), 0)
    return Account((*row.orders, event.order), row.total + 2 * event.total)


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool, account)


@pytest.fixture
def rebuilds(pool: Pool) -> Rebuilds:
    return Rebuilds(pool, patience=60)


async def kinds(rebuilds: Rebuilds) -> dict[str, int]:
    return {difference.kind: difference.count for difference in await rebuilds.compare(NAME)}


async def test_rows_rebuilt_while_events_flow_are_those_of_the_live_ones(
    shop: Shop, rebuilds: Rebuilds, dsn: Dsn, db: asyncpg.Connection
) -> None:
    alice, rows = await shop.opens()
    bob, _ = await shop.opens()
    chance = random.Random(11)
    sales = [(f"order-{n}", chance.choice(CUSTOMERS), chance.randint(1, 9)) for n in range(300)]
    async with running(dsn, alice), running(dsn, bob):
        await asyncio.gather(*(shop.sells(*sale) for sale in sales[:150]))
        assert await rebuilds.start(NAME) == 2
        receipts = await asyncio.gather(*(shop.sells(*sale) for sale in sales[150:]))
        for receipt in receipts:
            await receipt.applied(NAME, timeout=60)
        await asyncio.wait_for(rebuilds.until_built(NAME), 60)
        assert await kinds(rebuilds) == {"equal": 3, "changed": 0, "added": 0, "gone": 0}
        before = [await rows.get(customer) for customer in CUSTOMERS]
        assert await rebuilds.swap(NAME) == 2
        assert [await rows.get(customer) for customer in CUSTOMERS] == before
        last = await shop.sells("order-last", "Ada", 1)
        await last.applied(NAME, timeout=60)
    total = await db.fetchval("SELECT sum(total) FROM wh_rows_account")
    assert total == sum(sale[2] for sale in sales) + 1
    assert await db.fetchval("SELECT array_agg(subscriber_name) FROM wh_subscribers") == [f"perspective/{NAME}"]


async def test_a_changed_fold_is_true_of_all_events_after_the_swap_and_undone_with_what_came_since(
    shop: Shop, rebuilds: Rebuilds, dsn: Dsn, db: asyncpg.Connection
) -> None:
    old, rows = await shop.opens()
    async with running(dsn, old):
        await (await shop.sells("order-1", "Ada", 10)).applied(NAME, timeout=60)
    new, _ = await shop.opens(fold=doubled)
    async with running(dsn, new):
        await rebuilds.start(NAME)
        await asyncio.wait_for(rebuilds.until_built(NAME), 60)
        (changed,) = [found for found in await rebuilds.compare(NAME) if found.kind == "changed"]
        assert (changed.count, changed.samples[0]["key"], changed.samples[0]["built"]["total"]) == (1, "Ada", 20)
        await rebuilds.swap(NAME)
        await (await shop.sells("order-2", "Ada", 1)).applied(NAME, timeout=60)
        assert await rows.get("Ada") == Account(("order-1", "order-2"), 22)
        assert await rebuilds.undo(NAME) == 1
        # What was folded before the swap stays as it was; what came since is folded again.
        await until(lambda: rows.find(total=12))
        assert await rows.get("Ada") == Account(("order-1", "order-2"), 12)
        assert await rebuilds.undo(NAME) == 2
        assert await rows.get("Ada") == Account(("order-1", "order-2"), 22)
        await (await shop.sells("order-3", "Ada", 1)).applied(NAME, timeout=60)
        assert await rows.get("Ada") == Account(("order-1", "order-2", "order-3"), 24)
    assert (await row(db, f"perspective/{NAME}"))["attempts"] == 0


async def test_a_rebuild_that_is_behind_is_not_swapped_and_says_where_it_stands(
    shop: Shop, pool: Pool, dsn: Dsn, db: asyncpg.Connection
) -> None:
    rebuilds = Rebuilds(pool, patience=0)
    old, rows = await shop.opens()
    async with running(dsn, old):
        await shop.sells("order-1", "Ada", 1)
        await (await shop.sells("order-2", "Ada", -1)).applied(NAME, timeout=60)
    new, _ = await shop.opens(fold=doubled)
    async with running(dsn, new):
        await rebuilds.start(NAME)

        async def parked() -> bool:
            return (await rebuilds.progress(NAME)).rebuild_parked == 1

        await until(parked)
        with pytest.raises(
            NotApplied, match=r"behind .* by 1 events .*parked, after 3 attempts: ValueError: less than"
        ):
            await rebuilds.swap(NAME)
        # The live rows go on meanwhile.
        await (await shop.sells("order-3", "Bob", 1)).applied(NAME, timeout=60)
        assert await rows.get("Bob") == Account(("order-3",), 2)
        assert await rebuilds.abandon(NAME) == 2
    assert await db.fetchval(f"SELECT to_regclass('wh_rows_{NAME}_g2')") is None
    assert await db.fetchval("SELECT count(*) FROM wh_subscribers") == 1


async def test_another_instance_goes_on_with_a_rebuild(
    shop: Shop, rebuilds: Rebuilds, dsn: Dsn, db: asyncpg.Connection
) -> None:
    follower, _ = await shop.opens()
    for number in range(20):
        await shop.sells(f"order-{number}", "Ada", 1)
    await rebuilds.start(NAME)
    async with running(dsn, follower):
        await asyncio.wait_for(rebuilds.until_built(NAME), 60)
    await shop.sells("order-20", "Ada", 1)
    async with running(dsn, follower):
        await until(lambda: db.fetchval(f"SELECT total = 21 FROM wh_rows_{NAME}_g2"))
        await until(lambda: db.fetchval(f"SELECT total = 21 FROM wh_rows_{NAME}_g1"))
        await rebuilds.swap(NAME)
    assert await db.fetchval("SELECT total FROM wh_rows_account") == 21
