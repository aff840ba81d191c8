"""Receptors that hang, and leases that cannot be renewed: the work goes to another instance, and happens once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import asyncpg
import pytest

import whippletree as wt
from tests.conftest import Connect
from tests.waiting import until
from tests.work.shop import Reserve, drained, new_app, running, settings
from whippletree.claim.answer import Answer
from whippletree.claim.batch import WorkBatch
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.message.ids import new_instance_id
from whippletree.service import ServiceSettings
from whippletree.settings import Dsn
from whippletree.work.loop import LoopSettings

_EFFECTS = "CREATE TABLE public.effects (writer text)"
_INSERT = "INSERT INTO public.effects VALUES ($1)"
_LEASE = "SELECT lease_expiry FROM wh_active_streams WHERE instance_id IS NOT NULL"

# What a claim does to a stream whose lease has run out.
_CLAIMED_BY_ANOTHER = """
UPDATE wh_active_streams
SET instance_id = $1, lease_token = nextval('wh_lease_tokens'), lease_expiry = clock_timestamp() + interval '5 minutes',
  ready_at = clock_timestamp() + interval '5 minutes'
"""


def short(*, lease: float = 1, longest: float = 3600) -> ServiceSettings:
    return replace(
        settings(concurrency=1),
        grace=60,
        coordinator=CoordinatorSettings(lease_seconds=lease),
        loop=LoopSettings(polling_interval=0.05, longest_lease=longest),
    )


async def test_what_hangs_is_renewed_for_a_while_then_taken_over_and_its_effects_are_refused(
    dsn: Dsn, db: asyncpg.Connection
) -> None:
    await db.execute(_EFFECTS)
    hanging, other = new_app(dsn), new_app(dsn)
    hangs, goes_on = asyncio.Event(), asyncio.Event()

    @hanging.receptor(name="reserve")
    async def hang(command: Reserve, tx: wt.Transaction) -> None:
        await tx.execute(_INSERT, "the one that hung")
        hangs.set()
        while not goes_on.is_set():
            try:
                await goes_on.wait()
            except asyncio.CancelledError:
                # It does not even end when it is cancelled.
                continue

    @other.receptor(name="reserve")
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        await tx.execute(_INSERT, "the other")

    async with running(hanging, short(longest=2)) as first:
        await hanging.publish(Reserve("order-1"))
        await hangs.wait()
        taken = await db.fetchval(_LEASE)
        # It claims nothing more, so only the other one can take over.
        first.stop()
        await until(lambda: db.fetchval(f"{_LEASE} AND lease_expiry > $1", taken))
        async with running(other, short()):
            await drained(db)
            goes_on.set()
    assert await db.fetchval("SELECT array_agg(writer) FROM public.effects") == ["the other"]
    assert first.counters.leases_lost == 1


async def test_effects_of_work_that_another_has_claimed_meanwhile_do_not_commit(
    dsn: Dsn, db: asyncpg.Connection, connect: Connect
) -> None:
    await db.execute(_EFFECTS)
    app, claiming, other = new_app(dsn), await connect(), new_instance_id()
    calls: list[str] = []

    @app.receptor
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        calls.append(command.order)
        await tx.execute(_INSERT, command.order)
        if command.order == "order-1":
            await claiming.execute(_CLAIMED_BY_ANOTHER, other)

    async with running(app, kinds=("receptors",)) as service:
        await app.publish(Reserve("order-1"))
        await until(lambda: service.counters.leases_lost)
        await app.publish(Reserve("order-2"))
        await until(lambda: db.fetchval("SELECT 'order-2' IN (SELECT writer FROM public.effects)"))
    assert calls == ["order-1", "order-2"]
    assert await db.fetchval("SELECT array_agg(writer) FROM public.effects") == ["order-2"]
    assert await db.fetchval("SELECT instance_id FROM wh_active_streams") == other


async def test_an_external_receptor_is_cancelled_when_its_lease_is_not_renewed(
    dsn: Dsn, db: asyncpg.Connection
) -> None:
    hanging, other = new_app(dsn), new_app(dsn)
    hangs, cancelled = asyncio.Event(), asyncio.Event()

    @hanging.receptor(name="reserve", effects="external")
    async def hang(command: Reserve) -> None:
        hangs.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @other.receptor(name="reserve", effects="external")
    async def reserve(command: Reserve) -> None: ...

    async with running(hanging, short(lease=5)) as first:
        await hanging.publish(Reserve("order-1"))
        await hangs.wait()
        first.stop()
        async with running(other, short()):
            # As if the first had been cut off for the life of its lease.
            holder = first.instance.instance_id
            await until(lambda: _expired(db, holder))
            async with asyncio.timeout(60):
                await cancelled.wait()
    assert first.counters.leases_lost == 1
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 0


async def _expired(db: asyncpg.Connection, holder: object) -> bool:
    await db.execute(
        "UPDATE wh_active_streams SET lease_expiry = now(), ready_at = now() WHERE instance_id = $1", holder
    )
    return bool(await db.fetchval("SELECT NOT EXISTS (SELECT FROM wh_active_streams WHERE instance_id = $1)", holder))


async def test_an_instance_that_cannot_renew_in_time_begins_nothing_outside(
    dsn: Dsn, db: asyncpg.Connection, connect: Connect
) -> None:
    app = new_app(dsn)
    began: list[str] = []
    ages: list[float] = []
    goes_on = asyncio.Event()

    @app.receptor(effects="external")
    async def reserve(command: Reserve, context: wt.Context) -> None:
        began.append(command.order)
        runs = service._loop.coordinator.held.runs()  # type: ignore[union-attr]  # it runs
        ages.extend(
            time.monotonic() - run.renewed_at for run in runs if run.messages[0].message_id == context.message_id
        )
        await goes_on.wait()

    async with running(app, short()) as service:
        await app.publish_all([Reserve("order-1"), Reserve("order-2")])
        await until(lambda: len(began) == 1 and service.counters.active_leases == 2)
        locker = await connect()
        async with locker.transaction():
            await locker.execute("LOCK TABLE wh_active_streams IN ACCESS EXCLUSIVE MODE")
            await until(lambda: service.counters.stale_leases == 2)
            goes_on.set()
            # The first ends now. Enough rounds of the event loop for the second to begin, if it could.
            await until(lambda: _waits(locker))
            assert len(began) == 1
        await drained(db)
    assert sorted(began) == ["order-1", "order-2"]
    assert all(age < 1 for age in ages), "each began under a lease that lasted"


async def test_what_was_read_late_begins_outside_only_under_a_renewed_lease(
    dsn: Dsn, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, life = new_app(dsn), settings().coordinator.lease_seconds
    ages: list[float] = []
    read = WorkCoordinator.read

    def read_late(coordinator: WorkCoordinator, answer: Answer) -> WorkBatch:
        # As if the process had stood still for the life of the lease.
        answer.sent_at -= life
        return read(coordinator, answer)

    @app.receptor(effects="external")
    async def reserve(command: Reserve) -> None:
        (run,) = service._loop.coordinator.held.runs()  # type: ignore[union-attr]  # it runs
        ages.append(time.monotonic() - run.renewed_at)

    monkeypatch.setattr(WorkCoordinator, "read", read_late)
    async with running(app, settings()) as service:
        await app.publish(Reserve("order-1"))
        await drained(db)
    assert [age < life for age in ages] == [True]


async def _waits(locker: asyncpg.Connection) -> bool:
    """Whether the end of the first message waits to be stored, and the renewal of both leases."""
    return bool(
        await locker.fetchval(
            "SELECT count(*) >= 2 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    )
