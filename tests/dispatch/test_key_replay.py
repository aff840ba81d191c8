"""One key of a perspective that chooses its keys, made anew from the feed while others follow it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.accounts import Account, Bought, Pool, Shop, account
from tests.conftest import Connect
from tests.waiting import until, until_somebody_waits
from tests.work.following import running
from whippletree.dispatch.key_replay import KeyReplay
from whippletree.errors import PerspectiveFailed, UnknownName
from whippletree.settings import Dsn

NAME = "account"


def strict(row: Account | None, event: Bought) -> Account | None:
    if event.total > 5:
        raise ValueError("too much")
    return account(row, event)


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool, account)


async def spoil(db: asyncpg.Connection) -> None:
    await db.execute(f"""UPDATE wh_rows_{NAME}_g1 SET row = row || '{{"total": 900}}'""")


async def test_the_row_of_one_key_is_made_anew_from_many_streams_and_the_others_are_left(
    shop: Shop, pool: Pool, dsn: Dsn, db: asyncpg.Connection
) -> None:
    live, rows = await shop.opens()
    replay = KeyReplay(live, pool)
    with pytest.raises(UnknownName, match="nobody has followed"):
        await replay.rebuild("Ada")
    async with running(dsn, live):
        for number, customer in enumerate(("Ada", "Bob", "Ada", "Eve", "Ada")):
            receipt = await shop.sells(f"order-{number}", customer, number + 1)
        await receipt.applied(NAME, timeout=60)
    await spoil(db)
    # Numbered or not, what the live rows do not have is not for the row of a key, either.
    await shop.sells("order-later", "Ada", 1)
    await replay.rebuild("Ada")
    assert await rows.get("Ada") == Account(("order-0", "order-2", "order-4"), 9)
    assert await rows.get("Bob") == Account(("order-1",), 900)
    assert await db.fetchval(f"SELECT version FROM wh_rows_{NAME}_g1 WHERE key = 'Ada'") == 5
    async with running(dsn, live):
        await until(lambda: rows.find(total=10))
        # A row whose key no event has any more is removed.
        await db.execute(
            f"INSERT INTO wh_rows_{NAME}_g1 SELECT 'Old', row, version, updated_at FROM wh_rows_{NAME}_g1 LIMIT 1"
        )
        await replay.rebuild("Old")
        assert await rows.get("Old") is None
        with pytest.raises(UnknownName, match="has the key Old"):
            await replay.rebuild("Old")
        await (await shop.sells("order-last", "Ada", 1)).applied(NAME, timeout=60)
    assert await rows.get("Ada") == Account(("order-0", "order-2", "order-4", "order-later", "order-last"), 11)


async def test_a_key_that_cannot_be_folded_is_left_as_it_was(shop: Shop, pool: Pool, dsn: Dsn) -> None:
    live, rows = await shop.opens()
    async with running(dsn, live):
        await (await shop.sells("order-1", "Ada", 9)).applied(NAME, timeout=60)
        changed, _ = await shop.opens(fold=strict)
        with pytest.raises(PerspectiveFailed, match="cannot fold event 1 of the feed: ValueError: too much"):
            await KeyReplay(changed, pool).rebuild("Ada")
        await (await shop.sells("order-2", "Ada", 1)).applied(NAME, timeout=60)
    assert await rows.get("Ada") == Account(("order-1", "order-2"), 10)


async def test_what_was_folded_onto_the_old_row_of_a_key_is_refused_and_folded_again(
    shop: Shop, pool: Pool, dsn: Dsn, db: asyncpg.Connection, connect: Connect
) -> None:
    live, rows = await shop.opens()
    gate = await connect()
    async with running(dsn, live):
        await (await shop.sells("order-1", "Ada", 1)).applied(NAME, timeout=60)
        await spoil(db)
        # The holder has read the old row, and is about to write it with the next event.
        await db.execute(
            "CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM pg_advisory_xact_lock_shared(78); RETURN NEW; END; $$; "
            f"CREATE TRIGGER gate BEFORE INSERT ON wh_rows_{NAME}_g1 FOR EACH ROW "
            "WHEN (NEW.row ->> 'total' = '901') EXECUTE FUNCTION public.gate()"
        )
        await gate.execute("SELECT pg_advisory_lock(78)")
        receipt = await shop.sells("order-2", "Ada", 1)
        await until_somebody_waits(db)
        await asyncio.wait_for(KeyReplay(live, pool).rebuild("Ada"), 60)
        assert await rows.get("Ada") == Account(("order-1",), 1)
        await gate.execute("SELECT pg_advisory_unlock(78)")
        await receipt.applied(NAME, timeout=60)
    assert await rows.get("Ada") == Account(("order-1", "order-2"), 2)
    assert await db.fetchval("SELECT attempts FROM wh_subscribers") == 0


async def test_rebuilding_a_key_while_it_is_written_and_followed_loses_nothing(
    shop: Shop, pool: Pool, dsn: Dsn, db: asyncpg.Connection
) -> None:
    live, rows = await shop.opens()
    replay = KeyReplay(live, pool)
    await shop.sells("order-first", "Ada", 1)
    orders = 60

    async def sell() -> None:
        for number in range(orders):
            # Now and then there is no row.
            receipt = await shop.sells(f"order-{number}", "Ada", 0 if number % 20 == 9 else 1)
            if number % 10 == 5:
                await receipt.applied(NAME, timeout=60)
        await receipt.applied(NAME, timeout=60)

    async with running(dsn, live):
        selling = asyncio.create_task(sell())
        try:
            await until(lambda: db.fetchval("SELECT checkpoint > 0 FROM wh_subscribers"))
            while not selling.done():
                await asyncio.wait_for(replay.rebuild("Ada"), 60)
        finally:
            await asyncio.wait_for(selling, 60)
    assert await rows.get("Ada") == Account(tuple(f"order-{n}" for n in range(50, orders)), 10)
    assert await db.fetch("SELECT * FROM verify_subscribers()") == []
