"""The server's clock is put back by an hour, as when another server takes over: nothing waits for the hour to pass."""

from __future__ import annotations

import asyncpg

from tests.guarantees.ownership import owners
from tests.scenario import T0, Given, Worker, completion, failure, minutes, seconds
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.envelope import Queue

BACK = T0 - minutes(60)


async def test_what_was_ready_is_ready(given: Given, alice: Worker) -> None:
    await alice.polls()
    (waiting,) = await given.outbox()
    assert await alice.claims(as_of=BACK) == [waiting]
    await alice.reports(completion(waiting), as_of=BACK)
    (later,) = await given.outbox(as_of=BACK)
    assert await alice.claims(as_of=BACK) == [later]


async def test_a_retry_waits_as_long_as_it_was_to_wait(given: Given, alice: Worker) -> None:
    (failed,) = await given.outbox()
    await alice.claims()
    await alice.reports(failure(failed, retry_at=T0 + seconds(10)))
    assert await alice.claims(as_of=BACK) == []
    assert await alice.claims(as_of=BACK + seconds(9)) == []
    assert await alice.claims(as_of=BACK + seconds(10)) == [failed]


async def test_a_scheduled_message_waits_for_its_time(given: Given, alice: Worker, db: asyncpg.Connection) -> None:
    (scheduled,) = await given.outbox()
    await db.execute("UPDATE wh_messages SET scheduled_for = $1", T0 + seconds(10))
    assert await alice.claims() == []
    assert await alice.claims(as_of=BACK) == []
    assert await alice.claims(as_of=T0 + seconds(9)) == []
    assert await alice.claims(as_of=T0 + seconds(10)) == [scheduled]


async def test_a_lease_lasts_as_long_as_it_was_to_last(given: Given, alice: Worker, bob: Worker) -> None:
    await alice.polls()
    (held,) = await given.outbox()
    await bob.polls()
    assert await alice.claims() == [held]
    assert await bob.claims(as_of=BACK) == []
    assert await bob.claims(as_of=BACK + minutes(5) - seconds(1)) == []
    assert await bob.claims(as_of=BACK + minutes(5)) == [held]


async def test_a_dead_instance_is_seen_to_be_dead(alice: Worker, bob: Worker, db: asyncpg.Connection) -> None:
    await bob.polls()
    await alice.polls()
    await alice.polls(as_of=BACK)
    await alice.polls(as_of=BACK + minutes(10) + seconds(1))
    assert set((await owners(db)).values()) == {alice.instance_id}
    assert await db.fetchval("SELECT array_agg(instance_id) FROM wh_service_instances") == [alice.instance_id]


async def test_everybody_goes_back_once(given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection) -> None:
    await alice.polls()
    await bob.polls()
    await given.outbox()
    assert len([*await alice.claims(), *await bob.claims()]) == 1
    times = "SELECT ready_at, lease_expiry, moved_at FROM wh_active_streams"
    await alice.polls(as_of=BACK)
    once = await db.fetchrow(times)
    await bob.polls(as_of=BACK)
    assert await db.fetchrow(times) == once


async def test_a_subscriber_waits_for_its_retry_as_long_as_it_was_to_wait(
    alice: Worker, db: asyncpg.Connection
) -> None:
    await alice.polls()
    await db.execute("SELECT register_subscriber('diary', 0, true)")
    await db.execute("UPDATE wh_subscribers SET updated_at = $1, retry_at = $2", T0, T0 + seconds(10))
    await alice.polls(as_of=BACK)
    assert await db.fetchval("SELECT retry_at FROM wh_subscribers") == BACK + seconds(10)


async def test_what_an_instance_remembers_of_times_does_not_hide_new_work(
    pool: asyncpg.Pool[asyncpg.Record], given: Given, db: asyncpg.Connection
) -> None:
    """By the server's real clock, from the point of view of one that remembers an hour that has not come yet."""
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="shop"))
    now = await db.fetchval("SELECT clock_timestamp()")
    await coordinator.process_work_batch(WorkReport(limits={Queue.OUTBOX: 1}))
    ahead = now + minutes(60)
    coordinator._horizon._reach = {"outbox": ahead}
    coordinator._horizon._full_scan_due = coordinator._horizon._clock() + 3600
    await db.execute("UPDATE wh_service_instances SET last_heartbeat_at = $1", ahead)
    (new,) = await given.outbox(as_of=now)
    for _ in range(2):
        batch = await coordinator.process_work_batch(WorkReport(limits={Queue.OUTBOX: 1}))
        if batch.claimed_outbox_messages:
            break
    assert [message.message_id for message in batch.claimed_outbox_messages] == [new.message_id]
