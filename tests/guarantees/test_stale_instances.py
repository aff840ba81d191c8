"""An instance that is gone is removed, and what it owned and held goes to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg

from tests.guarantees.ownership import owners, require_balance
from tests.guarantees.storing import refused
from tests.scenario import T0, Given, RowsWorker, Worker, minutes, seconds
from tests.waiting import until_somebody_waits

Connect = Callable[[], Awaitable[asyncpg.Connection]]


async def _members(db: asyncpg.Connection) -> set[object]:
    return {row["instance_id"] for row in await db.fetch("SELECT instance_id FROM wh_service_instances")}


async def test_a_stale_instance_is_removed_and_its_partitions_are_released(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    (held,) = await given.outbox()
    assert await alice.claims() == [held]
    (waiting,) = await given.outbox(stream="another")
    assert set(await bob.claims(as_of=T0 + minutes(10) + seconds(1))) == {held, waiting}
    assert await _members(db) == {bob.instance_id}
    assert set((await owners(db)).values()) == {bob.instance_id}
    evicted = await db.fetchrow("SELECT * FROM wh_evicted_instances")
    assert evicted is not None
    assert (evicted["instance_id"], evicted["evicted_by"]) == (alice.instance_id, bob.instance_id)
    assert "no heartbeat since" in evicted["reason"]


async def test_a_heartbeat_younger_than_the_threshold_keeps_everything(
    alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    await alice.polls()
    await bob.polls(as_of=T0 + minutes(9))
    assert await _members(db) == {alice.instance_id, bob.instance_id}
    assert set((await owners(db)).values()) == {alice.instance_id}


async def test_an_instance_never_removes_itself_however_old_its_heartbeat(
    alice: Worker, db: asyncpg.Connection
) -> None:
    await alice.polls()
    await alice.polls(as_of=T0 + minutes(60))
    assert await _members(db) == {alice.instance_id}
    assert set((await owners(db)).values()) == {alice.instance_id}


async def test_the_stale_threshold_is_the_callers(join: Callable[..., Worker], db: asyncpg.Connection) -> None:
    alice, bob = join("alice"), join("bob", stale_threshold_seconds=10)
    await alice.polls()
    await bob.polls(as_of=T0 + seconds(10))
    assert await _members(db) == {alice.instance_id, bob.instance_id}
    await bob.polls(as_of=T0 + seconds(11))
    assert await _members(db) == {bob.instance_id}


async def test_an_instance_that_leaves_is_not_evicted_and_frees_its_work_at_once(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    (held,) = await given.outbox()
    await alice.claims()
    await db.execute("SELECT leave($1, $2)", alice.instance_id, T0)
    assert await bob.claims() == [held]
    assert await db.fetchval("SELECT count(*) FROM wh_evicted_instances") == 0


async def test_the_streams_of_a_dead_instance_come_before_a_younger_backlog(
    given: Given, alice: Worker, bob: Worker
) -> None:
    """It is first in the queue again, as it was when it was claimed; an older one still goes before it."""
    (held,) = await given.outbox(as_of=T0)
    for number in range(5):
        await given.outbox(stream=f"younger {number}", as_of=T0 + seconds(1))
    assert await alice.claims(limit=1, as_of=T0 + seconds(2)) == [held]
    (older,) = await given.outbox(stream="older", as_of=T0 - seconds(1))
    later = T0 + minutes(10) + seconds(3)
    assert await bob.claims(limit=1, as_of=later) == [older]
    assert await bob.claims(limit=1, as_of=later) == [held]


async def test_a_stream_keeps_its_place_when_one_holder_after_the_other_dies(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    (held,) = await given.outbox(as_of=T0)
    await given.outbox(stream="younger", as_of=T0 + seconds(1))
    for number in range(3):
        holder = join(f"holder {number}")
        assert await holder.claims(limit=1, as_of=T0 + seconds(2 + number)) == [held]
        await db.execute("SELECT leave($1, $2)", holder.instance_id, T0 + seconds(2 + number))


async def test_a_dead_process_is_seen_by_its_free_session_lock(
    given: Given, pool: asyncpg.Pool[asyncpg.Record], bob: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    """Its work is taken over after 1.2 seconds of silence, long before the stale threshold."""
    alice = RowsWorker(pool, "alice")
    session = await connect()
    key = await db.fetchval("SELECT session_lock_key($1)", alice.instance_id)
    assert await session.fetchval("SELECT pg_try_advisory_lock($1)", key)
    alice.coordinator.session_locked = True
    (held,) = await given.outbox()
    assert await alice.claims() == [held]

    # While the process lives it holds the lock, and silence alone is no proof.
    assert await bob.claims(as_of=T0 + minutes(4)) == []
    assert await _members(db) == {alice.instance_id, bob.instance_id}
    await alice.polls(as_of=T0 + minutes(4))

    await session.close()
    assert await db.fetchval("SELECT pg_advisory_lock($1) IS NOT NULL AND pg_advisory_unlock($1)", key)
    assert await bob.claims(as_of=T0 + minutes(4) + seconds(1)) == []
    assert await bob.claims(as_of=T0 + minutes(4) + seconds(1.3)) == [held]
    assert await _members(db) == {bob.instance_id}
    assert set((await owners(db)).values()) == {bob.instance_id}
    assert "session ended" in await db.fetchval("SELECT reason FROM wh_evicted_instances")
    with refused("WH001"):
        await alice.polls(as_of=T0 + minutes(4) + seconds(1.3))


async def test_a_held_session_lock_does_not_save_an_instance_past_the_stale_threshold(
    pool: asyncpg.Pool[asyncpg.Record], bob: Worker, db: asyncpg.Connection
) -> None:
    """A process may hang with its connection open."""
    alice = RowsWorker(pool, "alice")
    assert await db.fetchval("SELECT pg_try_advisory_lock(session_lock_key($1))", alice.instance_id)
    alice.coordinator.session_locked = True
    await alice.polls()
    await bob.polls(as_of=T0 + minutes(10))
    assert await _members(db) == {alice.instance_id, bob.instance_id}
    await bob.polls(as_of=T0 + minutes(10) + seconds(1))
    assert await _members(db) == {bob.instance_id}


async def test_without_a_session_lock_only_the_stale_threshold_counts(
    alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    await alice.polls()
    await bob.polls(as_of=T0 + minutes(5))
    assert await _members(db) == {alice.instance_id, bob.instance_id}


async def test_silence_while_the_server_was_down_does_not_count(
    alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    started = await db.fetchval("SELECT pg_postmaster_start_time()")
    await alice.polls(as_of=started - minutes(60))
    await bob.polls(as_of=started + minutes(9))
    assert await _members(db) == {alice.instance_id, bob.instance_id}
    await bob.polls(as_of=started + minutes(11))
    assert await _members(db) == {bob.instance_id}


async def test_of_two_who_come_back_at_once_neither_removes_the_other(
    db: asyncpg.Connection, connect: Connect, alice: Worker, bob: Worker
) -> None:
    """Both were silent for longer than the threshold. A heartbeat counts before it is committed."""
    await alice.polls()
    await bob.polls()
    later, other = T0 + minutes(20), await connect()
    async with asyncio.timeout(60), other.transaction():
        await other.execute(_HEARTBEAT, bob.instance_id, later)
        await alice.polls(as_of=later)
        await other.execute("SELECT remove_dead_instances($1, 600, $2)", bob.instance_id, later)
    assert await _members(db) == {alice.instance_id, bob.instance_id}


async def test_a_poll_that_is_not_committed_keeps_nobody_from_taking_over(
    given: Given, db: asyncpg.Connection, connect: Connect, join: Callable[..., Worker]
) -> None:
    """A caller in a transaction of its own may have been cut off in the middle of it."""
    alice, bob, carol = join("alice"), join("bob"), join("carol")
    (held,) = await given.outbox()
    assert await carol.claims() == [held]
    later, other = T0 + minutes(20), await connect()
    await alice.polls()
    await bob.polls()
    async with asyncio.timeout(60), other.transaction():
        await other.execute(_HEARTBEAT, bob.instance_id, later)
        assert await alice.claims(as_of=later) == [held]
    await bob.polls(as_of=later)
    await alice.polls(as_of=later)
    await bob.polls(as_of=later)
    assert await _members(db) == {alice.instance_id, bob.instance_id}
    await require_balance(db, [alice, bob])


async def test_who_comes_back_while_it_is_being_removed_is_told_so_and_removes_nobody(
    db: asyncpg.Connection, connect: Connect, alice: Worker, bob: Worker
) -> None:
    await alice.polls()
    await bob.polls()
    one, other = await connect(), await connect()
    async with asyncio.timeout(60):
        async with one.transaction():
            await one.execute(_POLL, alice.instance_id, "alice", T0 + minutes(20))
            coming = asyncio.create_task(other.execute(_POLL, bob.instance_id, "bob", T0 + minutes(20)))
            await until_somebody_waits(db)
        with refused("WH001"):
            await coming
    assert await _members(db) == {alice.instance_id}


_HEARTBEAT = "SELECT record_heartbeat($1, 'bob', 'test', 1, '{}', false, $2)"
_POLL = "SELECT * FROM process_work_batch($1, $2, 'test', 1, p_as_of => $3)"


async def test_a_poll_within_a_second_writes_no_heartbeat(alice: Worker, db: asyncpg.Connection) -> None:
    await alice.polls()
    await alice.polls(as_of=T0 + seconds(1))
    assert await db.fetchval("SELECT last_heartbeat_at FROM wh_service_instances") == T0
    await alice.polls(as_of=T0 + seconds(1.5))
    assert await db.fetchval("SELECT last_heartbeat_at FROM wh_service_instances") == T0 + seconds(1.5)
