"""A perspective that chooses its keys: events of many streams meet in one row, in the order of their commits."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

from tests.accounts import Account, Bought, Pool, Shop, account
from tests.waiting import until
from tests.work.following import running
from whippletree.errors import NotApplied
from whippletree.settings import Dsn
from whippletree.store.feed import Feed
from whippletree.work.subscriber_row import SubscriptionState


def checked(row: Account | None, event: Bought) -> Account | None:
    if event.total < 0:
        raise ValueError("less than nothing")
    return account(row, event)


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool, checked)


async def test_events_of_many_streams_meet_in_the_row_of_their_key(shop: Shop, dsn: Dsn) -> None:
    follower, rows = await shop.opens()
    async with running(dsn, follower):
        await shop.sells("order-1", "Ada", 10)
        await shop.sells("order-2", "Bob", 5)
        receipt = await shop.sells("order-3", "Ada", 20)
        await receipt.applied("account", timeout=60)
        assert await rows.get("Ada") == Account(("order-1", "order-3"), 30)
        assert await rows.find(total=5) == [Account(("order-2",), 5)]
        await (await shop.sells("order-4", "Ada", 0)).applied("account", timeout=60)
        assert await rows.get("Ada") is None


async def test_the_rows_are_the_same_when_they_are_built_again(shop: Shop, dsn: Dsn, db: asyncpg.Connection) -> None:
    live, rows = await shop.opens()
    chance = random.Random(7)
    async with running(dsn, live):
        sales = [(f"order-{n}", chance.choice(["Ada", "Bob", "Eve"]), chance.randint(1, 9)) for n in range(200)]
        receipts = await asyncio.gather(*(shop.sells(*sale) for sale in sales))
        for receipt in receipts:
            await receipt.applied("account", timeout=60)
    again, others = await shop.opens("account_again")
    async with running(dsn, again) as alice:
        await until(lambda: alice.state("perspective/account_again") is SubscriptionState.LIVE)
    for customer in ("Ada", "Bob", "Eve"):
        assert await others.get(customer) == await rows.get(customer)
    total = await db.fetchval("SELECT sum(total) FROM wh_rows_account")
    assert total == sum(sale[2] for sale in sales)


async def test_another_instance_goes_on_where_the_first_one_ended(shop: Shop, dsn: Dsn) -> None:
    follower, rows = await shop.opens()
    async with running(dsn, follower):
        await (await shop.sells("order-1", "Ada", 10)).applied("account", timeout=60)
    async with running(dsn, follower):
        await (await shop.sells("order-2", "Ada", 20)).applied("account", timeout=60)
    assert await rows.get("Ada") == Account(("order-1", "order-2"), 30)


async def test_an_event_that_cannot_be_folded_parks_the_perspective_and_a_receipt_says_so(
    shop: Shop, dsn: Dsn, db: asyncpg.Connection
) -> None:
    follower, rows = await shop.opens()
    async with running(dsn, follower) as alice:
        await shop.sells("order-1", "Ada", 10)
        bad = await shop.sells("order-2", "Ada", -1)
        await until(lambda: alice.state("perspective/account") is SubscriptionState.PARKED)
        with pytest.raises(NotApplied, match="it is parked at event 2 after 3 attempts: ValueError: less than nothing"):
            await bad.applied("account", timeout=0.05)
        assert await rows.get("Ada") == Account(("order-1",), 10)
        told = [row[0] for row in await db.fetch("SELECT why('account')")]
        assert any("is parked at event 2" in sentence for sentence in told)


async def test_a_receipt_of_an_old_event_is_answered_truthfully_however_much_came_after_it(
    shop: Shop, dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    follower, _ = await shop.opens()
    async with running(dsn, follower):
        old = await shop.sells("order-1", "Ada", 10)
        await old.applied("account", timeout=60)
    behind = await shop.sells("order-2", "Ada", 10)
    assert await Feed(pool).last_number() == 2
    # As if as many more events had been numbered since.
    await db.execute(
        "INSERT INTO wh_event_sequence (number, version, stream_id) "
        "SELECT n, n, '00000000-0000-0000-0000-000000000001' FROM generate_series(3, 150000) n"
    )
    await db.execute(
        "UPDATE wh_event_sequence n SET (seen_below, seen_open) = (b.seen_below, b.seen_open) "
        "FROM wh_event_sequence b WHERE n.number = 150000 AND b.number = 2"
    )
    await old.applied("account", timeout=60)
    with pytest.raises(NotApplied):
        await behind.applied("account", timeout=1)
    await db.execute("UPDATE wh_subscribers SET checkpoint = 2")
    await behind.applied("account", timeout=60)
    await db.execute("UPDATE wh_subscribers SET checkpoint = 150000")
    await behind.applied("account", timeout=60)
