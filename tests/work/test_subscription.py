"""A subscriber follows all events in one order, from where it left off; a bad event parks it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from tests.conftest import Connect
from tests.waiting import until
from tests.work.following import Diary, Pool, append, effects, make_effects, row, running
from whippletree.dispatch.policy import Retry
from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode, Start
from whippletree.errors import CheckpointMoved, DuplicateName, InvalidMessage, InvalidSetting, LeaseLost, UnknownName
from whippletree.settings import Dsn
from whippletree.store.database import translated
from whippletree.store.feed import Chosen
from whippletree.work.subscriber_row import SubscriptionState

MODES = [InstanceMode.SINGLE_INSTANCE, InstanceMode.COORDINATED]


@pytest.fixture(autouse=True)
async def _effects(db: asyncpg.Connection) -> None:
    await make_effects(db)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 100])
async def test_it_catches_up_and_then_follows_live(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection, mode: InstanceMode, count: int
) -> None:
    await append(pool, "One", "Two", "Three")
    diary = Diary(mode=mode, checkpoint=CheckpointEvery(count=count))
    async with running(dsn, diary) as alice:
        await until(lambda: alice.state() is SubscriptionState.LIVE)
        assert await effects(db) == ["One", "Two", "Three"]
        await append(pool, "Four")
        await until(lambda: len(diary.seen) == 4)
        await until(lambda: alice.state() is SubscriptionState.LIVE)
        assert (await row(db))["state"] == "live"
    assert await effects(db) == ["One", "Two", "Three", "Four"]
    assert (await row(db))["checkpoint"] == 4
    assert (await row(db))["state"] == "standby"


async def test_it_goes_on_from_its_checkpoint(dsn: Dsn, pool: Pool, db: asyncpg.Connection) -> None:
    await append(pool, "One")
    async with running(dsn, Diary()) as alice:
        await until(lambda: alice.state() is SubscriptionState.LIVE)
    await append(pool, "Two")
    async with running(dsn, Diary()) as alice:
        await until(lambda: alice.state() is SubscriptionState.LIVE)
    assert await effects(db) == ["One", "Two"]


@pytest.mark.parametrize(("start", "expected"), [(Start.NOW, ["Later"]), (1, ["Two", "Later"])])
async def test_a_new_one_begins_where_it_is_told(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection, start: Start | int, expected: list[str]
) -> None:
    await append(pool, "One", "Two")
    diary = Diary(start=start)
    async with running(dsn, diary) as alice:
        await until(lambda: alice.state() is SubscriptionState.LIVE)
        await append(pool, "Later")
        await until(lambda: diary.seen == expected)


async def test_only_chosen_events_come_and_the_checkpoint_passes_the_others(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    await append(pool, *["Noise"] * 3, "Shop.OrderPlaced", *["Noise"] * 3)
    diary = Diary(chosen=Chosen(patterns=["OrderPlaced"]))
    async with running(dsn, diary) as alice:
        await until(lambda: alice.state() is SubscriptionState.LIVE)
    assert diary.seen == ["Shop.OrderPlaced"]
    assert (await row(db))["checkpoint"] == 7


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("count", [1, 100])
async def test_a_failing_event_is_tried_again_and_then_parks_the_subscriber(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection, transactional: bool, count: int
) -> None:
    tried = []

    def fail(name: str) -> None:
        tried.append(name)
        if name == "Bad":
            raise RuntimeError("no such customer")

    await append(pool, "One", "Bad", "Three")
    diary = Diary(transactional=transactional, checkpoint=CheckpointEvery(count=count), before=fail)
    async with running(dsn, diary) as alice:
        await until(lambda: alice.state() is SubscriptionState.PARKED)
        parked = await row(db)
        assert (parked["state"], parked["checkpoint"], parked["failed_number"], parked["attempts"]) == (
            "parked",
            1,
            2,
            3,
        )
        assert parked["error"] == "RuntimeError: no such customer"
        assert "Three" not in tried

        tried.clear()
        assert await db.fetchval("SELECT redrive_subscriber('diary', 'mended')")
        await until(lambda: tried == ["Bad"] * 3)
        await until(lambda: alice.state() is SubscriptionState.PARKED)

        assert not await db.fetchval("SELECT skip_subscriber('diary', 3, 'not this one')")
        assert await db.fetchval("SELECT skip_subscriber('diary', 2, 'hopeless')")
        await until(lambda: alice.state() is SubscriptionState.LIVE)
        assert diary.seen[-1] == "Three"
    actions = await db.fetch("SELECT action, number, attempts, reason FROM wh_subscriber_actions ORDER BY action_id")
    assert [tuple(action) for action in actions] == [("redrive", 2, 3, "mended"), ("skip", 2, 3, "hopeless")]
    if transactional:
        assert await effects(db) == ["One", "Three"]


async def test_an_event_that_cannot_be_applied_leaves_no_effects(dsn: Dsn, pool: Pool, db: asyncpg.Connection) -> None:
    class Late(Diary):
        async def apply(self, *arguments: object) -> None:
            await super().apply(*arguments)  # type: ignore[arg-type]
            raise RuntimeError("after the effects")

    await append(pool, "One")
    async with running(dsn, Late()) as alice:
        await until(lambda: alice.state() is SubscriptionState.PARKED)
    assert await effects(db) == []


async def test_a_parked_subscriber_stays_parked_under_the_next_holder(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(name)

    await append(pool, "Bad")
    for _ in range(2):
        diary = Diary(before=fail)
        async with running(dsn, diary) as alice:
            await until(lambda: alice.state() is SubscriptionState.PARKED)
    assert (await row(db))["attempts"] == 3


async def test_a_paused_subscriber_stops_and_goes_on(dsn: Dsn, pool: Pool, db: asyncpg.Connection) -> None:
    diary = Diary()
    async with running(dsn, diary) as alice:
        await until(lambda: alice.state() is SubscriptionState.LIVE)
        assert await db.fetchval("SELECT pause_subscriber('diary', true, 'maintenance')")
        await append(pool, "One")
        with pytest.raises(asyncpg.PostgresError, match="is paused"):
            epoch = (await row(db))["epoch"]
            await db.fetchval("SELECT advance_subscriber('diary', $1, 0, 1, pg_postmaster_start_time())", epoch)
        assert await db.fetchval("SELECT pause_subscriber('diary', false)")
        await until(lambda: diary.seen[-1:] == ["One"])
    assert await effects(db) == ["One"]


async def test_the_checkpoint_is_written_after_so_many_events_or_at_the_end(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    diary = Diary(transactional=False, checkpoint=CheckpointEvery(count=2, seconds=3600))
    async with running(dsn, diary):
        for number in range(1, 4):
            await append(pool, f"Event{number}")
            await until(lambda: len(diary.seen) == number)  # noqa: B023 - called in this turn only
        await until(lambda: _is_at(db, 2))
    assert (await row(db))["checkpoint"] == 3


async def _is_at(db: asyncpg.Connection, number: int) -> bool:
    return bool((await row(db))["checkpoint"] == number)


async def test_an_event_that_ends_its_process_every_time_is_parked(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    await append(pool, "Deadly")
    diary = Diary(before=lambda name: asyncio.Event().wait())
    async with running(dsn, diary) as alice:
        await until(lambda: alice.state() is SubscriptionState.LIVE or alice.state().value == "catching up")
    for number in range(3):
        await db.fetch("SELECT * FROM hold_subscriber('diary', gen_random_uuid())")
        assert (await row(db))["attempts"] == number
    async with running(dsn, Diary(retry=Retry(attempts=3))) as alice:
        await until(lambda: alice.state() is SubscriptionState.PARKED)
    assert "its process ended each time" in (await row(db))["error"]


async def test_a_holder_of_an_older_epoch_is_refused(dsn: Dsn, pool: Pool, db: asyncpg.Connection) -> None:
    await append(pool, "One")
    async with running(dsn, Diary()) as alice:
        await until(lambda: alice.state() is SubscriptionState.LIVE)
    old = (await row(db))["epoch"]
    await db.fetch("SELECT * FROM hold_subscriber('diary', gen_random_uuid())")
    for statement in (
        f"SELECT enter_subscriber('diary', {old})",
        f"SELECT advance_subscriber('diary', {old}, 1, 2, pg_postmaster_start_time())",
        f"SELECT fail_subscriber('diary', {old}, 2, 1, 'late', 1, pg_postmaster_start_time())",
        f"SELECT record_subscriber('diary', {old}, 'live', true)",
    ):
        with pytest.raises(LeaseLost, match="not under"), translated():
            await db.execute(statement)
    await db.execute(f"SELECT leave_subscriber('diary', {old})")
    assert (await row(db))["holder"] is not None, "leaving late changes nothing"


async def test_a_holder_on_another_server_writes_nothing(pool: Pool, db: asyncpg.Connection) -> None:
    """That server may have other events under the numbers that the holder knows."""
    await append(pool, "One")
    await db.execute("SELECT number_events(), register_subscriber('diary', 0, false)")
    held = await db.fetchrow("SELECT * FROM hold_subscriber('diary', gen_random_uuid())")
    assert held is not None
    there = (held["epoch"], held["server"] - timedelta(seconds=1))
    with pytest.raises(CheckpointMoved, match="on another server"), translated():
        await db.execute("SELECT advance_subscriber('diary', $1, 0, 1, $2)", *there)
    await db.execute("SELECT fail_subscriber('diary', $1, 1, 1, 'boom', NULL, $2)", *there)
    found = await db.fetch("SELECT checkpoint, failed_number, state FROM wh_subscribers")
    assert list(map(tuple, found)) == [(0, None, "catching up")]


@pytest.mark.parametrize("mode", MODES)
async def test_one_that_breaks_off_is_begun_again(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection, mode: InstanceMode
) -> None:
    """Whatever it was: nobody else would follow where nothing is coordinated."""
    diary = Diary(mode=mode, checkpoint=None)  # type: ignore[arg-type]  # nobody expects that
    async with running(dsn, diary) as alice:
        await append(pool, "One")
        await until(lambda: ("diary", SubscriptionState.LOST) in alice.told)
        diary.checkpoint = CheckpointEvery()
        await until(lambda: effects(db))
    assert await effects(db) == ["One"]


async def test_what_a_former_holder_left_open_is_ended(dsn: Dsn, db: asyncpg.Connection, connect: Connect) -> None:
    await db.execute("SELECT register_subscriber('diary', 0, true)")
    epoch = (await db.fetchrow("SELECT * FROM hold_subscriber('diary', gen_random_uuid())"))["epoch"]  # type: ignore[index]
    former = await connect()
    await former.execute(f"BEGIN; SELECT enter_subscriber('diary', {epoch})")
    await db.fetch("SELECT * FROM hold_subscriber('diary', gen_random_uuid())")
    async with asyncio.timeout(30), db.transaction():
        await db.execute(f"SELECT enter_subscriber('diary', {epoch + 1})")
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await former.execute("SELECT 1")


async def test_names_are_checked(dsn: Dsn) -> None:
    with pytest.raises(InvalidSetting, match="cannot be a subscriber's name"):
        async with running(dsn, Diary(name="it's")):
            pass
    with pytest.raises(DuplicateName, match="diary already"):
        async with running(dsn, Diary(), Diary()):
            pass
    with pytest.raises(InvalidMessage, match="is not a pattern"):
        async with running(dsn, Diary(chosen=Chosen(patterns=["no spaces"]))):
            pass
    async with running(dsn, Diary()) as alice:
        with pytest.raises(UnknownName, match="there are diary"):
            await alice.worker.unsubscribe("dairy")
