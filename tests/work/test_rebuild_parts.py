"""The parts into which a rebuild by key is divided: what becomes of one that fails, and how far they say they are."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.accounts import Account, Bought, Pool, Shop, account
from tests.work.following import running
from whippletree.dispatch.rebuild import PerspectiveOverview, Rebuilds
from whippletree.errors import InvalidMessage, NotApplied
from whippletree.settings import Dsn
from whippletree.store.database import translated
from whippletree.store.overview import overview

NAME = "account"
COUNT = 1_500
BAD = 700
CUSTOMERS = tuple("ABCDEFGH")


def strict(row: Account | None, event: Bought) -> Account | None:
    if event.total == BAD:
        raise ValueError("too much")
    return account(row, event)


def strict_key(event: Any) -> str:
    if event.total == BAD:
        raise KeyError("no such customer")
    return str(event.customer)


@pytest.fixture
async def shop(pool: Pool, dsn: Dsn) -> Shop:
    """With as many events as are divided, all of them in the live rows."""
    shop = Shop(pool, account)
    live, _ = await shop.opens()
    totals = range(1, COUNT + 1)
    for first in range(0, COUNT, 100):
        sales = [(CUSTOMERS[total % len(CUSTOMERS)], total) for total in totals[first : first + 100]]
        receipt = await shop.sells_all(f"order-{first}", sales)
    async with running(dsn, live):
        await receipt.applied(NAME, timeout=60)
    return shop


@pytest.fixture
def rebuilds(pool: Pool) -> Rebuilds:
    return Rebuilds(pool, patience=0)


async def built(rebuilds: Rebuilds) -> PerspectiveOverview:
    return await asyncio.wait_for(rebuilds.until_built(NAME), 60)


async def begun(rebuilds: Rebuilds) -> PerspectiveOverview:
    """As far as it comes at first."""
    await rebuilds.start(NAME)
    return await built(rebuilds)


async def test_an_event_that_cannot_be_folded_parks_its_part_alone_and_is_folded_after_it_was_redriven(
    shop: Shop, rebuilds: Rebuilds, dsn: Dsn, db: asyncpg.Connection
) -> None:
    new, _ = await shop.opens(fold=strict)
    async with running(dsn, new):
        stands = await begun(rebuilds)
        assert (stands.rebuild_streams, stands.rebuild_parked, stands.rebuild_sorted) == (1, 1, COUNT)
        # Two parts have all their events, and the third those before the bad one.
        assert 2 * COUNT + BAD - 2 * len(CUSTOMERS) < 3 * stands.rebuilt < 2 * COUNT + BAD
        assert stands.rebuilt + stands.rebuild_waiting == COUNT
        with pytest.raises(NotApplied, match=r"being folded, and 1 of 3 parts .* parked, after 3 attempts: ValueError"):
            await rebuilds.swap(NAME, behind=COUNT)
        part = await db.fetchval("SELECT subscriber_name FROM wh_subscribers WHERE state = 'parked'")
        sentences = [row[0] for row in await db.fetch("SELECT why($1)", f"{NAME}@2")]
        assert f"it is parked at event {BAD} after 3 attempts: ValueError: too much; mend" in "".join(sentences)
    mended, _ = await shop.opens()
    async with running(dsn, mended):
        assert await db.fetchval("SELECT redrive_subscriber($1)", part)
        await built(rebuilds)
        assert {one.kind: one.count for one in await rebuilds.compare(NAME)}["equal"] == len(CUSTOMERS)
        assert await rebuilds.swap(NAME) == 2
        await (await shop.sells("order-last", "A", 1)).applied(NAME, timeout=60)
    assert await db.fetchval(f"SELECT sum(total) FROM wh_rows_{NAME}") == 1 + sum(range(1, COUNT + 1))


async def test_an_event_whose_key_cannot_be_told_parks_the_sorting_and_may_be_skipped(
    shop: Shop, rebuilds: Rebuilds, dsn: Dsn, db: asyncpg.Connection
) -> None:
    new, _ = await shop.opens(key=strict_key)
    async with running(dsn, new):
        stands = await begun(rebuilds)
        assert (stands.rebuilt, stands.rebuild_waiting) == (0, COUNT)
        assert (stands.rebuild_streams, stands.rebuild_parked) == (1, 1)
        # One part of three came no further than to the bad event.
        assert stands.rebuild_sorted == COUNT - (2 * COUNT // 3 - (BAD - 1))
        with pytest.raises(NotApplied, match=rf"sorted by key.*sort-2 is at event {BAD}, parked, .*no such customer"):
            await rebuilds.swap(NAME)
        part = f"perspective/{NAME}@2/sort-2"
        assert await db.fetchval("SELECT skip_subscriber($1, $2, 'unknown')", part, BAD)
        await built(rebuilds)
        assert await rebuilds.swap(NAME) == 2
    assert await db.fetchval(f"SELECT sum(total) FROM wh_rows_{NAME}") == sum(range(1, COUNT + 1)) - BAD
    assert await db.fetch("SELECT * FROM verify_subscribers()") == []


async def test_keys_are_kept_in_order_when_a_program_with_another_key_goes_on(
    shop: Shop, rebuilds: Rebuilds, dsn: Dsn, db: asyncpg.Connection
) -> None:
    """What was sorted by one key is folded by that key."""
    broken, _ = await shop.opens(fold=strict)
    async with running(dsn, broken):
        await begun(rebuilds)
    other, _ = await shop.opens(key=lambda event: "all")
    async with running(dsn, other):
        await db.execute("SELECT redrive_subscriber(subscriber_name) FROM wh_subscribers WHERE state = 'parked'")
        await built(rebuilds)
        assert {one.kind: one.count for one in await rebuilds.compare(NAME)}["equal"] == len(CUSTOMERS)


async def test_a_rebuild_that_is_abandoned_in_the_middle_leaves_nothing(
    shop: Shop, rebuilds: Rebuilds, dsn: Dsn, db: asyncpg.Connection
) -> None:
    await rebuilds.start(NAME)
    assert [alert.problem for alert in (await overview(db, "whippletree")).alerts] == [
        f"nobody works perspective/{NAME}@2, a rebuild, and parts of it wait"
    ]
    assert "waits for an instance with room for it" in (await db.fetch("SELECT why($1)", f"{NAME}@2"))[1][0]
    stands = await rebuilds.progress(NAME)
    assert (stands.rebuilt, stands.rebuild_waiting, stands.rebuild_streams, stands.rebuild_sorted) == (0, COUNT, 3, 0)
    with pytest.raises(InvalidMessage, match="is a part of a rebuild"), translated():
        await db.execute("SELECT reset_subscriber($1, 0, 'again')", f"perspective/{NAME}@2/sort-1")
    broken, _ = await shop.opens(fold=strict)
    async with running(dsn, broken):
        assert (await built(rebuilds)).rebuild_parked == 1
        assert await rebuilds.abandon(NAME) == 2
        assert await db.fetchval("SELECT count(*) FROM wh_subscribers") == 1
        left = "SELECT relname FROM pg_class WHERE relname ~ '^wh_(keys|rows)_account_g' AND relkind = 'r'"
        assert [row[0] for row in await db.fetch(left)] == ["wh_rows_account_g1"]
        assert (await rebuilds.progress(NAME)).building_generation is None
    mended, _ = await shop.opens()
    async with running(dsn, mended):
        assert await rebuilds.start(NAME) == 3
        assert (await built(rebuilds)).rebuild_parked == 0
        assert await rebuilds.swap(NAME) == 3
