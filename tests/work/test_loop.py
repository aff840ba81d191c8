"""The loop of an instance: hands out, reports, renews, survives, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tests.shop import Pool
from tests.waiting import until
from whippletree.claim.batch import WorkBatch
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.held import LEASE_LOST
from whippletree.claim.instance import ServiceInstance
from whippletree.claim.session import InstanceSession
from whippletree.message.codec import encode
from whippletree.message.envelope import ClaimedMessage, OutboxMessage
from whippletree.message.outcome import MessageCompletion, MessageRelease, Outcome, Rejection
from whippletree.settings import Dsn
from whippletree.store.outbox import store_outbox
from whippletree.work.loop import HELD_TOO_LONG, LoopSettings, WorkLoop
from whippletree.work.worker import Worker

_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()
"""


class Hands(Worker):
    """Takes messages; finishes them at once, or when it is told to."""

    def __init__(self, *, at_once: bool = True, room: int = 50) -> None:
        self.taken: list[ClaimedMessage] = []
        self.in_hand: list[ClaimedMessage] = []
        self.gone: list[Rejection] = []
        self.room = room
        self._at_once = at_once
        self._outcomes: list[Outcome] = []
        self._changed: Callable[[], None] = lambda: None

    def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def wants(self, coming: Mapping[str, int]) -> Mapping[str, int]:
        return {"outbox": self.room - len(self.in_hand) - coming.get("outbox", 0)}

    def take(self, batch: WorkBatch) -> None:
        self.taken += batch.claimed_outbox_messages
        self.in_hand += batch.claimed_outbox_messages
        if self._at_once and self.in_hand:
            self.finish()

    def finish(self) -> None:
        self._outcomes += [MessageCompletion(message.message_id) for message in self.in_hand]
        self.in_hand.clear()
        self._changed()

    def outcomes(self) -> Sequence[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def lost(self, rejections: Sequence[Rejection]) -> None:
        self.gone += rejections
        self.in_hand.clear()

    async def stop(self, grace: float) -> None:
        self._outcomes += [MessageRelease(message.message_id) for message in self.in_hand]
        self.in_hand.clear()


class Running:
    """A loop that runs in this process."""

    def __init__(self, pool: Pool, hands: Hands, loop: dict[str, Any], **settings: Any) -> None:
        self.coordinator = WorkCoordinator(pool, ServiceInstance(service_name="loop"), CoordinatorSettings(**settings))
        pace = LoopSettings(**{"polling_interval": 0.02, **loop})
        self.loop = WorkLoop(self.coordinator, [hands], pace)

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[WorkLoop]:
        running = asyncio.create_task(self.loop.run())
        try:
            yield self.loop
        finally:
            self.loop.stop(grace=5)
            await asyncio.wait_for(running, 30)


async def stored(db: asyncpg.Connection, count: int, streams: int = 10) -> None:
    await store_outbox(
        [OutboxMessage(message_type="Happened", payload=encode(n), stream=f"s{n % streams}") for n in range(count)],
        on=db,
    )


async def left(db: asyncpg.Connection) -> int:
    return int(await db.fetchval("SELECT count(*) FROM wh_outbox"))


async def test_everything_is_handed_out_once_and_in_order(pool: Pool, db: asyncpg.Connection) -> None:
    await stored(db, 500)
    hands = Hands()
    async with Running(pool, hands, {})() as loop:
        await until(lambda: len(hands.taken) == 500)
        await until(lambda: len(loop.coordinator.held) == 0)
    assert await left(db) == 0
    order: dict[object, list[int]] = {}
    for message in hands.taken:
        order.setdefault(message.stream_id, []).append(message.version)
    assert all(versions == list(range(1, 51)) for versions in order.values())
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0


class Diary(Hands):
    """Takes five at a time. Writes down when it is called, and when a task that handles what came gets its turn."""

    def __init__(self) -> None:
        super().__init__(at_once=False)
        self.written: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def wants(self, coming: Mapping[str, int]) -> Mapping[str, int]:
        return {"outbox": 5}

    def take(self, batch: WorkBatch) -> None:
        super().take(batch)
        if batch.claimed_outbox_messages:
            self.written.append("came")
            self._tasks.append(asyncio.create_task(self._handle()))

    def outcomes(self) -> Sequence[Outcome]:
        self.written.append("called")
        return super().outcomes()

    async def _handle(self) -> None:
        self.written.append("begun")


@pytest.mark.parametrize(
    ("waiting", "written"),
    [(3, ["called", "came", "begun", "called"]), (10, ["called", "called", "came", "begun"])],
    ids=["all", "more"],
)
async def test_what_came_begins_before_the_next_call_and_during_it_where_more_waits(
    pool: Pool, db: asyncpg.Connection, waiting: int, written: list[str]
) -> None:
    await stored(db, waiting)
    diary = Diary()
    async with Running(pool, diary, {})():
        await until(lambda: len(diary.written) >= 4)
        assert diary.written[:4] == written


class Sleeper(Hands):
    """Takes one message, and wakes up when its lease has run out: it ends it just when it has come again."""

    awake = False

    def wants(self, coming: Mapping[str, int]) -> Mapping[str, int]:
        if self.awake and coming and len(self.taken) == 1:
            self.finish()
        return {"outbox": 1 if self.awake or not (self.taken or coming) else 0}

    def wake(self) -> None:
        self.awake = True
        self._changed()


async def test_what_comes_again_while_its_old_end_is_on_its_way_is_not_lost(pool: Pool, db: asyncpg.Connection) -> None:
    await stored(db, 1)
    hands = Sleeper(at_once=False)
    async with Running(pool, hands, {})() as loop:
        await until(lambda: len(hands.taken) == 1)
        await db.execute("UPDATE wh_active_streams SET ready_at = clock_timestamp(), lease_expiry = clock_timestamp()")
        await store_outbox([OutboxMessage(message_type="Happened", payload=encode(1))], on=db)
        hands.wake()
        await until(lambda: len(hands.taken) == 3)
        first, again, other = hands.taken
        assert first.message_id == again.message_id != other.message_id
        assert first.lease_token < again.lease_token
        assert hands.gone == []
        hands.finish()
        await until(lambda: len(loop.coordinator.held) == 0)
    assert await left(db) == 0


async def test_lost_connections_are_survived_and_nothing_is_done_twice(pool: Pool, db: asyncpg.Connection) -> None:
    await stored(db, 400)
    hands = Hands(room=7)
    async with Running(pool, hands, {"first_pause": 0.001, "longest_pause": 0.01})() as loop:
        for count in range(20, 400, 60):
            await until(lambda: len(hands.taken) >= count)  # noqa: B023 - awaited at once
            await db.execute(_TERMINATE)
        await until(lambda: len(hands.taken) >= 400 and len(loop.coordinator.held) == 0)
    assert await left(db) == 0
    assert len(hands.taken) == 400
    assert hands.gone == []


_SLOW = """
CREATE FUNCTION public.take_time() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN OLD; END; $$;
CREATE TRIGGER slow BEFORE DELETE ON wh_messages FOR EACH ROW EXECUTE FUNCTION public.take_time();
"""
_REFUSE = """
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.payload::text = '77' THEN
    RAISE EXCEPTION 'not this one' USING ERRCODE = '22000';
  END IF;
  RETURN OLD;
END;
$$;
CREATE TRIGGER refuse BEFORE DELETE ON wh_messages FOR EACH ROW EXECUTE FUNCTION public.refuse();
"""


async def test_what_the_database_has_no_time_for_at_once_is_handed_in_by_portions(
    dsn: Dsn, db: asyncpg.Connection
) -> None:
    """Else the list of what is to be reported would only grow, and nothing of it would ever be taken."""
    await stored(db, 250, streams=250)
    await db.execute(_SLOW)
    hands = Hands(room=250)
    limit = {"statement_timeout": "1s"}
    async with (
        asyncpg.create_pool(dsn.reveal(), min_size=0, max_size=4, server_settings=limit) as pool,
        Running(pool, hands, {})() as loop,
    ):
        await until(lambda: left_is(db, 0))
        await until(lambda: len(loop.coordinator.held) == 0)
    assert len(hands.taken) == 250
    assert hands.gone == []


async def test_a_report_that_the_database_refuses_does_not_take_the_others_with_it(
    pool: Pool, db: asyncpg.Connection
) -> None:
    await stored(db, 100, streams=100)
    await db.execute(_REFUSE)
    hands = Hands(room=100)
    async with Running(pool, hands, {})() as loop:
        await until(lambda: left_is(db, 1))
        await until(lambda: len(loop.coordinator.held) == 0)
        await stored(db, 10)
        await until(lambda: left_is(db, 1))
    assert [rejection.reason for rejection in hands.gone] == [LEASE_LOST]
    assert await db.fetchval("SELECT payload FROM wh_messages") == "77"


async def left_is(db: asyncpg.Connection, count: int) -> bool:
    return await left(db) == count


async def test_an_evicted_instance_loses_everything_and_joins_again_under_a_new_id(
    pool: Pool, db: asyncpg.Connection
) -> None:
    await stored(db, 3, streams=3)
    hands = Hands(at_once=False)
    running = Running(pool, hands, {})
    first = running.coordinator.instance.instance_id
    async with running():
        await until(lambda: len(hands.in_hand) == 3)
        async with db.transaction():
            await db.execute("INSERT INTO wh_evicted_instances VALUES ($1, now(), $1, 'stale')", first)
            await db.execute("DELETE FROM wh_service_instances")
        # What the instance is just reporting on is passed over, and is left to the next one who looks.
        while await db.fetchval(
            "SELECT count(*) FROM wh_active_streams WHERE instance_id = $1 AND lease_expiry > clock_timestamp()", first
        ):
            await db.execute("SELECT free_instances($1, clock_timestamp())", [first])
        await until(lambda: len(hands.gone) == 3)
        assert {rejection.reason for rejection in hands.gone} == {LEASE_LOST}
        await until(lambda: len(hands.in_hand) == 3)
        assert running.coordinator.instance.instance_id != first
        hands.finish()
        await until(lambda: len(running.coordinator.held) == 0)
    assert await left(db) == 0


async def test_a_lease_is_renewed_while_the_work_is_in_hand(pool: Pool, db: asyncpg.Connection) -> None:
    await stored(db, 1)
    hands = Hands(at_once=False)
    async with Running(pool, hands, {}, lease_seconds=30)() as loop:
        await until(lambda: len(hands.in_hand) == 1)
        (run,) = loop.coordinator.held.runs()
        before = await db.fetchval("SELECT lease_expiry FROM wh_outbox")
        # As if a third of its life had passed.
        run.renewed_at -= 11
        loop._renewal_due = 0
        asked = run.renewed_at
        await until(lambda: run.renewed_at > asked)
        assert await db.fetchval("SELECT lease_expiry FROM wh_outbox") > before
        assert run.claimed_at < run.renewed_at
    assert hands.gone == []


async def test_what_stays_in_hand_is_soon_out_of_the_way_of_claims(pool: Pool, db: asyncpg.Connection) -> None:
    await stored(db, 1)
    hands = Hands(at_once=False)
    async with Running(pool, hands, {}, lease_seconds=300)() as loop:
        await until(lambda: len(hands.in_hand) == 1)
        (run,) = loop.coordinator.held.runs()
        # As if two seconds had passed.
        asked = run.claimed_at = run.renewed_at = run.claimed_at - 2
        loop._renewal_due = 0
        await until(lambda: run.renewed_at > asked)
        assert await db.fetchval("SELECT ready_at = lease_expiry FROM wh_active_streams")


async def test_work_that_is_in_hand_for_too_long_is_given_up(pool: Pool, db: asyncpg.Connection) -> None:
    await stored(db, 1)
    hands = Hands(at_once=False)
    async with Running(pool, hands, {"longest_lease": 60}, lease_seconds=30)() as loop:
        await until(lambda: len(hands.in_hand) == 1)
        (run,) = loop.coordinator.held.runs()
        run.claimed_at, run.renewed_at = run.claimed_at - 100, run.renewed_at - 31
        loop._renewal_due = 0
        await until(lambda: len(hands.gone) == 1)
        assert hands.gone[0].reason == HELD_TOO_LONG
        assert len(loop.coordinator.held) == 0


async def test_what_was_not_begun_goes_back_untried_when_the_loop_ends(pool: Pool, db: asyncpg.Connection) -> None:
    await stored(db, 4, streams=2)
    hands = Hands(at_once=False)
    async with Running(pool, hands, {})():
        await until(lambda: len(hands.in_hand) == 4)
    rows = await db.fetch("SELECT instance_id, attempts FROM wh_outbox")
    assert [tuple(row) for row in rows] == [(None, 0)] * 4


async def test_what_arrives_wakes_an_instance_that_sleeps(pool: Pool, dsn: Dsn, db: asyncpg.Connection) -> None:
    hands = Hands()
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="sleeper"))
    async with InstanceSession(dsn, coordinator) as session:
        pace = LoopSettings(polling_interval=600, first_sleep=600)
        loop = WorkLoop(coordinator, [hands], pace, wake=session.wake)
        running = asyncio.create_task(loop.run())
        for number in range(1, 4):
            async with asyncio.timeout(30):
                while not await db.fetchval("SELECT bool_or(waiting) FROM wh_service_instances"):
                    pass
            await stored(db, 1)
            await until(lambda: len(hands.taken) == number)  # noqa: B023 - awaited at once
        loop.stop()
        await asyncio.wait_for(running, 30)
    assert await left(db) == 0


async def test_what_nobody_was_told_of_is_found_after_about_as_long_as_its_transaction_took(
    pool: Pool, dsn: Dsn, db: asyncpg.Connection
) -> None:
    hands = Hands()
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="sleeper"))
    async with InstanceSession(dsn, coordinator) as session:
        loop = WorkLoop(coordinator, [hands], LoopSettings(polling_interval=600), wake=session.wake)
        async with db.transaction():
            # Nobody waits yet.
            await stored(db, 1)
            running = asyncio.create_task(loop.run())
            await until(lambda: loop.turns >= 4)
        await until(lambda: len(hands.taken) == 1)
        assert session.wake.notifications == 0
        loop.stop()
        await asyncio.wait_for(running, 30)


async def test_an_error_of_the_program_ends_the_loop(pool: Pool) -> None:
    running = Running(pool, Hands(), {}, partition_count=7)
    with pytest.raises(Exception, match="partition_count"):
        await asyncio.wait_for(running.loop.run(), 30)
