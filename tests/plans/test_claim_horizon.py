"""A claim does not walk over what is long done, and what lies behind its horizon is late, never lost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import asyncpg
import pytest

from tests.conftest import Connect
from tests.plans.explained import Explained
from tests.scenario import Given, minutes, seconds
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.horizon import ReadyHorizon
from whippletree.claim.instance import ServiceInstance
from whippletree.message.envelope import Queue
from whippletree.message.ids import MessageId, new_instance_id, new_message_id
from whippletree.message.outcome import MessageCompletion

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
OUTBOX = {Queue.OUTBOX: 100}


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def horizon(clock: Clock) -> ReadyHorizon:
    return ReadyHorizon(clock)


def test_the_first_claim_scans_in_full(horizon: ReadyHorizon) -> None:
    assert horizon.begin(["outbox"]).since is None


def test_the_next_claim_starts_where_the_last_one_said(horizon: ReadyHorizon, clock: Clock) -> None:
    _claim(horizon, clock, took=1)
    assert horizon.begin(["outbox"]).since == NOON
    _claim(horizon, clock, took=0.1, kind="nothing", since=NOON + minutes(1))
    assert horizon.begin(["outbox"]).since == NOON + minutes(1)


async def test_a_claim_says_to_look_from_the_oldest_it_found_or_a_little_back_from_when_it_looked(
    pool: asyncpg.Pool[asyncpg.Record], given: Given, db: asyncpg.Connection
) -> None:
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="oldest"))
    await coordinator.process_work_batch(WorkReport(limits={Queue.OUTBOX: 0}))

    async def said() -> list[datetime]:
        rows = await db.fetch(
            "SELECT detail FROM claim_messages($1, 'outbox', 1, 300, 100, 16777216, 10, '-infinity', $2)",
            *(coordinator.instance.instance_id, NOON),
        )
        return [datetime.fromtimestamp(int(row[0]) / 1e6, UTC) for row in rows]

    just_before = NOON - seconds(0.1)
    for ready_at in (NOON - seconds(60), NOON - seconds(0.25), NOON - seconds(0.05)):
        await given.outbox(stream=None, as_of=ready_at)
        assert await said() == [min(ready_at, just_before)]
    assert await db.fetchval("SELECT detail FROM found_nothing('outbox', $1)", NOON) == str(
        int(just_before.timestamp() * 1e6)
    )


def test_full_scans_take_a_twentieth_of_the_time(horizon: ReadyHorizon, clock: Clock) -> None:
    _claim(horizon, clock, took=0.1)
    clock.now += 1.9
    assert horizon.begin(["outbox"]).since is not None
    clock.now += 0.2
    assert horizon.begin(["outbox"]).since is None


def test_a_slow_full_scan_is_due_again_after_ten_seconds(horizon: ReadyHorizon, clock: Clock) -> None:
    _claim(horizon, clock, took=5)
    clock.now += 10
    assert horizon.begin(["outbox"]).since is None


def test_a_queue_that_was_never_claimed_from_is_scanned_in_full(horizon: ReadyHorizon, clock: Clock) -> None:
    _claim(horizon, clock, took=1)
    assert horizon.begin(["outbox", "inbox"]).since is None


def test_other_partitions_are_scanned_in_full(horizon: ReadyHorizon, clock: Clock) -> None:
    _claim(horizon, clock, took=1)
    horizon.reset()
    assert horizon.begin(["outbox"]).since is None


async def test_work_that_was_committed_late_is_claimed_all_the_same(
    pool: asyncpg.Pool[asyncpg.Record], given: Given, connect: Connect
) -> None:
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="late"))
    now = datetime.now(UTC)
    slow = await connect()
    transaction = slow.transaction()
    await transaction.start()
    (late,) = await given.outbox(stream=new_message_id(), as_of=now - seconds(60), on=slow)
    (early,) = await given.outbox(stream=new_message_id(), as_of=now)
    assert await _worked(coordinator) == [early.message_id]
    await transaction.commit()

    assert await _next_worked(coordinator) == [late.message_id]


async def test_a_lease_that_ran_out_behind_the_horizon_is_found(
    pool: asyncpg.Pool[asyncpg.Record], given: Given, db: asyncpg.Connection
) -> None:
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="expired"))
    now = datetime.now(UTC)
    (old,) = await given.outbox(stream=new_message_id(), as_of=now - seconds(60))
    assert len((await coordinator.process_work_batch(WorkReport(limits=OUTBOX))).claimed_outbox_messages) == 1
    (new,) = await given.outbox(stream=new_message_id(), as_of=now)
    assert await _worked(coordinator) == [new.message_id]
    await db.execute("UPDATE wh_active_streams SET lease_expiry = clock_timestamp()")
    assert await _next_worked(coordinator) == [old.message_id]


async def test_a_claim_behind_its_horizon_does_not_read_what_an_old_snapshot_keeps(
    pool: asyncpg.Pool[asyncpg.Record], given: Given, connect: Connect
) -> None:
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="snapshot"))
    watcher = await connect()
    await watcher.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await watcher.fetch("SELECT FROM wh_messages")
    now = datetime.now(UTC)
    for _ in range(5):
        await given.outbox(stream=None, count=200, as_of=now - seconds(60))
        while await _worked(coordinator):
            pass
    await given.outbox(stream=new_message_id(), as_of=now)

    explained = await Explained.on(await connect())
    full = await _blocks_read(explained, coordinator, now - seconds(3600), now)
    bounded = await _blocks_read(explained, coordinator, now - seconds(0.1), now)
    assert bounded < full / 3
    await watcher.execute("COMMIT")


async def test_every_survivor_looks_at_everything_once_an_instance_has_died(
    pool: asyncpg.Pool[asyncpg.Record], given: Given, db: asyncpg.Connection
) -> None:
    """Its streams wait where they were, behind the horizon of the others, even if it owned no partition."""
    survivor = WorkCoordinator(pool, ServiceInstance(service_name="survivor"), CoordinatorSettings(lease_seconds=1e-6))
    now = datetime.now(UTC)
    (held,) = await given.outbox(as_of=now - seconds(60))
    assert (await survivor.process_work_batch(WorkReport(limits=OUTBOX))).claimed_outbox_messages
    dead = new_instance_id()
    taken = "SELECT * FROM claim_messages($1, 'outbox', 10, 300, 100, 16777216, 10, '-infinity', clock_timestamp())"
    assert len(await db.fetch(taken, dead)) == 1

    since = "SELECT NULLIF(scan_since(partitions_version, $1, $2), '-infinity') FROM wh_service_instances"
    version = await db.fetchval("SELECT partitions_version FROM wh_service_instances")
    assert await db.fetchval(since, version, now) == now
    await db.execute("SELECT leave($1)", dead)
    assert await db.fetchval(since, version, now) is None
    assert await _worked(survivor) == [held.message_id]


async def test_an_idle_instance_does_not_read_the_backlog_of_another(
    pool: asyncpg.Pool[asyncpg.Record], given: Given, connect: Connect
) -> None:
    idle, busy = (WorkCoordinator(pool, ServiceInstance(service_name=name)) for name in ("idle", "busy"))
    nothing = WorkReport(limits={Queue.OUTBOX: 0})
    for _ in range(2):
        for coordinator in (idle, busy):
            await coordinator.process_work_batch(nothing)
    now = datetime.now(UTC)
    await given.outbox(stream=None, count=2000, as_of=now - seconds(60))
    while await _worked(idle):
        pass
    explained = await Explained.on(await connect())
    full = await _blocks_read(explained, idle, now - seconds(3600), now)
    bounded = await _blocks_read(explained, idle, now - seconds(1), now)
    assert bounded < full / 10
    assert len(await _worked(busy)) == 100


def _claim(horizon: ReadyHorizon, clock: Clock, *, took: float, kind: str = "claimed", since: datetime = NOON) -> None:
    """A claim that says from when on the next one has to look."""
    scan = horizon.begin(["outbox"])
    clock.now += took
    row = (kind, "outbox", *[None] * 13, str(int(since.timestamp() * 1e6)))
    horizon.end(scan, [cast("asyncpg.Record", row)])


async def _worked(coordinator: WorkCoordinator) -> list[MessageId]:
    """Claim and complete; what was claimed."""
    batch = await coordinator.process_work_batch(WorkReport(limits=OUTBOX))
    claimed = [message.message_id for message in batch.claimed_outbox_messages]
    await coordinator.process_work_batch(WorkReport(outcomes=[MessageCompletion(id_) for id_ in claimed], limits={}))
    return claimed


async def _next_worked(coordinator: WorkCoordinator) -> list[MessageId]:
    """Claim and complete until something comes."""
    for _ in range(10_000):
        if claimed := await _worked(coordinator):
            return claimed
    return []


async def _blocks_read(explained: Explained, coordinator: WorkCoordinator, since: datetime, as_of: datetime) -> int:
    plans = await explained.plans(
        "SELECT * FROM pick_streams(ARRAY[$1::uuid], 'outbox', 10, 100, 16777216, 10, $2, $3)",
        *(coordinator.instance.instance_id, since, as_of),
    )
    (pick,) = [plan for plan in plans if "candidate AS MATERIALIZED" in plan.statement]
    return int(pick.root.facts["Shared Hit Blocks"] + pick.root.facts["Shared Read Blocks"])
