"""One instance follows, the others stand by; whoever lost the subscriber commits nothing more."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import pytest

from tests.claim.wire import pooler, wire
from tests.conftest import SCHEMA, Connect
from tests.waiting import until
from tests.work.following import Diary, Pool, Running, append, effects, make_effects, row, running
from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode
from whippletree.errors import InvalidSetting
from whippletree.settings import Dsn
from whippletree.store.schema import migrate
from whippletree.work.subscriber_row import SubscriptionState

LIVE, STANDBY, LOST = SubscriptionState.LIVE, SubscriptionState.STANDBY, SubscriptionState.LOST


@pytest.fixture(autouse=True)
async def _effects(db: asyncpg.Connection) -> None:
    await make_effects(db)


def holding(running: Running) -> int:
    return sum(s.state is LIVE for s in running.worker.subscriptions.values())


async def test_one_follows_and_the_other_stands_by(dsn: Dsn, pool: Pool, db: asyncpg.Connection) -> None:
    async with running(dsn, Diary()) as alice, running(dsn, Diary()) as bob:
        await until(lambda: LIVE in (alice.state(), bob.state()))
        await append(pool, "One", "Two")
        await until(lambda: _has(db, ["One", "Two"]))
        assert {alice.state(), bob.state()} == {LIVE, STANDBY}
    assert await effects(db) == ["One", "Two"]


async def _has(db: asyncpg.Connection, expected: list[str]) -> bool:
    return await effects(db) == expected


async def test_a_standby_takes_over_at_once_after_unsubscribe(dsn: Dsn, pool: Pool, db: asyncpg.Connection) -> None:
    """At once: the standby is told, and would by itself look once an hour only."""
    async with running(dsn, Diary()) as alice:
        await until(lambda: alice.state() is LIVE)
        async with running(dsn, Diary(), try_every=3600) as bob:
            await until(lambda: _standbys(db, 2))
            await alice.worker.unsubscribe("diary")
            await until(lambda: bob.state() is LIVE)
            await append(pool, "One")
            await until(lambda: _has(db, ["One"]))
            assert alice.state() is STANDBY


async def _standbys(db: asyncpg.Connection, count: int) -> bool:
    found = await db.fetchval("SELECT count(*) FROM subscriber_locks('{diary}', 60) WHERE NOT holds")
    return bool(found == count)


async def test_a_standby_takes_over_at_once_after_a_clean_stop(dsn: Dsn, db: asyncpg.Connection) -> None:
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(running(dsn, Diary()))
        await until(lambda: alice.state() is LIVE)
        async with running(dsn, Diary(), try_every=3600) as bob:
            await until(lambda: _standbys(db, 2))
            await stack.aclose()
            await until(lambda: bob.state() is LIVE)


async def test_a_holder_whose_connection_is_lost_stops_and_stands_by_again(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await never.wait()

    await append(pool, "One")
    slow = Diary(before=lambda name: hang())
    async with wire(dsn) as (line, address), running(dsn, slow, session_dsn=address) as alice:
        await begun.wait()
        async with running(dsn, Diary()) as bob:
            line.refusing = True
            await db.execute("SELECT pg_terminate_backend($1, 5000)", alice.session.process_id)
            await until(lambda: bob.state() is LIVE)
            assert await effects(db) == ["One"]
            assert ("diary", LOST) in alice.told
            assert alice.state() is STANDBY
            line.refusing = False
            await until(lambda: _standbys(db, 2))
            await bob.worker.unsubscribe("diary")
            slow.before = lambda name: None
            await until(lambda: alice.state() is LIVE)
    assert await effects(db) == ["One"]


async def test_a_silent_holder_is_superseded_and_refused_when_it_wakes_up(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    """A frozen wire is what a stopped process looks like from outside: connected, and saying nothing."""
    await append(pool, "One")
    begun, go = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await go.wait()

    async with (
        wire(dsn) as (line, address),
        running(dsn, Diary(before=lambda name: hang()), session_dsn=address) as alice,
    ):
        await begun.wait()
        line.freeze()
        line.refusing = True
        async with running(dsn, Diary(), silent_after=0.5) as bob:
            await until(lambda: bob.state() is LIVE)
            assert await effects(db) == ["One"]
            go.set()
            await append(pool, "Two")
            await until(lambda: _has(db, ["One", "Two"]))
            await until(lambda: alice.state() is not LIVE)
        assert (await row(db))["checkpoint"] == 2
    assert await effects(db) == ["One", "Two"]


async def test_subscribers_spread_over_instances(dsn: Dsn, db: asyncpg.Connection) -> None:
    names = [f"subscriber:{number}" for number in range(6)]
    async with AsyncExitStack() as stack:

        async def join() -> Running:
            diaries = [Diary(name=name) for name in names]
            return await stack.enter_async_context(running(dsn, *diaries, balance_every=0.05))

        instances = [await join()]
        await until(lambda: holding(instances[0]) == 6)
        for joined in (2, 3):
            instances.append(await join())
            await until(lambda: sorted(map(holding, instances)) == [6 // joined] * joined)  # noqa: B023
        told = sum(len(instance.told) for instance in instances)
        for _ in range(50):
            await db.fetchval("SELECT pg_sleep(0.01)")
        assert sum(len(instance.told) for instance in instances) == told, "balanced, nothing moves any more"


async def test_behind_a_pooler_it_is_refused_with_an_explanation(dsn: Dsn, db: asyncpg.Connection) -> None:
    async with pooler(dsn, backends=2, honest=True) as address:
        with pytest.raises(InvalidSetting, match=r"diary is coordinated.*pooler.*WHIPPLETREE_DIRECT_DSN"):
            async with running(dsn, Diary(), session_dsn=address):
                pass
        single = Diary(mode=InstanceMode.SINGLE_INSTANCE, checkpoint=CheckpointEvery())
        async with running(dsn, single, session_dsn=address) as alice:
            await until(lambda: alice.state() is LIVE)


async def test_of_two_that_coordinate_nothing_the_latest_follows(dsn: Dsn, pool: Pool, db: asyncpg.Connection) -> None:
    async with running(dsn, Diary(mode=InstanceMode.SINGLE_INSTANCE)) as alice:
        await until(lambda: alice.state() is LIVE)
        async with running(dsn, Diary(mode=InstanceMode.SINGLE_INSTANCE)) as bob:
            await until(lambda: bob.state() is LIVE)
            await append(pool, "One")
            await until(lambda: alice.state() is LOST)
            await until(lambda: _has(db, ["One"]))
            assert bob.state() is LIVE


async def test_100_000_names_have_distinct_keys(db: asyncpg.Connection) -> None:
    distinct = "SELECT count(DISTINCT subscriber_lock('projection:' || n)) FROM generate_series(1, 100000) n"
    assert await db.fetchval(distinct) == 100_000
    printed = await db.fetchval(
        "SELECT subscriber_lock('users') = ARRAY[('x' || substr(md5($1), 1, 8))::bit(32)::int,"
        " ('x' || substr(md5($1), 9, 8))::bit(32)::int]",
        f"{SCHEMA}:users",
    )
    assert printed, "the two halves of the specification, with the schema before the name"


async def test_two_schemas_do_not_exclude_each_other(db: asyncpg.Connection) -> None:
    await migrate(db, "other")
    own = await db.fetchval("SELECT subscriber_lock('users')")
    assert own != await db.fetchval("SELECT other.subscriber_lock('users')")


@pytest.mark.parametrize("coordinated", [True, False])
async def test_the_row_of_a_holder_that_is_gone_says_lost(db: asyncpg.Connection, coordinated: bool) -> None:
    await db.execute("SELECT register_subscriber('diary', 0, $1)", coordinated)
    await db.fetch("SELECT * FROM hold_subscriber('diary', gen_random_uuid())")
    assert (await row(db))["state"] == "lost"


async def test_of_what_is_free_a_session_takes_its_share_and_the_rest_only_when_nobody_has_taken_it(
    connect: Connect,
) -> None:
    names = [f"subscriber:{number}" for number in range(6)]
    alice, bob = await connect(), await connect()
    for session in (alice, bob):
        await session.execute("SELECT stand_by($1)", names)

    async def takes(session: asyncpg.Connection, anyway: list[str]) -> list[str]:
        rows = await session.fetch("SELECT * FROM take_subscribers($1, $2, 60)", names, anyway)
        return sorted(row["standing"] for row in rows)

    async def alice_has_all() -> bool:
        return await takes(alice, names) == ["held"] * 6

    assert await takes(alice, []) == ["free"] * 3 + ["held"] * 3
    assert await takes(bob, []) == ["another's"] * 3 + ["held"] * 3
    await bob.close()
    await until(alice_has_all)
