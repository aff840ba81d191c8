"""An instance's dedicated connection: its lock is a witness of its life, and it is replaced when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

import asyncpg
import pytest

from tests.claim.wire import pooler, wire
from tests.scenario import T0, Given, S, minutes, seconds
from tests.waiting import until
from whippletree.claim.batch import WorkBatch, WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.claim.session import InstanceSession, SessionSettings
from whippletree.errors import InstanceEvicted, StoreUnavailable
from whippletree.settings import Dsn
from whippletree.store.database import open_pool

AT_ONCE = SessionSettings(probe_every=0.02, probe_timeout=10, first_pause=0.001, longest_pause=0.01)

Named = Callable[[str], WorkCoordinator]


@pytest.fixture
def named(pool: asyncpg.Pool[asyncpg.Record]) -> Named:
    return lambda name: WorkCoordinator(pool, ServiceInstance(service_name=name))


async def polls(coordinator: WorkCoordinator, as_of: datetime = T0) -> WorkBatch:
    return await coordinator.process_work_batch(WorkReport(), as_of=as_of)


async def lock_is_free(db: asyncpg.Connection, coordinator: WorkCoordinator) -> bool:
    return bool(
        await db.fetchval("SELECT pg_try_advisory_xact_lock(session_lock_key($1))", coordinator.instance.instance_id)
    )


async def test_the_lock_is_held_while_the_session_lives(dsn: Dsn, named: Named, db: asyncpg.Connection) -> None:
    alice = named("alice")
    async with InstanceSession(dsn, alice) as session:
        assert session.held.is_set()
        assert session.degraded is None
        assert alice.session_locked
        assert not await lock_is_free(db, alice)
        holder = await db.fetchval(
            "SELECT state FROM pg_stat_activity WHERE pid = $1 AND application_name = 'whippletree'", session.process_id
        )
        assert holder == "idle", "never inside a transaction"
    assert not alice.session_locked
    async with asyncio.timeout(30):
        while not await lock_is_free(db, alice):
            pass


async def test_an_instance_whose_session_was_killed_is_removed_at_once(
    dsn: Dsn, named: Named, db: asyncpg.Connection, given: Given
) -> None:
    alice, bob = named("alice"), named("bob")
    async with wire(dsn) as (line, address), InstanceSession(address, alice) as session:
        (stored,) = await given.outbox(stream=S)
        assert [m.message_id for m in (await polls(alice)).claimed_outbox_messages] == [stored.message_id]
        assert (await polls(bob, T0 + seconds(60))).empty, "silent, but its lock says that it lives"

        line.refusing = True
        await db.execute("SELECT pg_terminate_backend($1, 5000)", session.process_id)
        await until(session.lost.is_set)
        assert not alice.session_locked
        batch = await polls(bob, T0 + seconds(62))
        assert [m.message_id for m in batch.claimed_outbox_messages] == [stored.message_id]
        with pytest.raises(InstanceEvicted, match="session ended, no heartbeat since"):
            await polls(alice, T0 + seconds(63))


async def test_an_instance_without_a_session_is_judged_by_its_heartbeat_alone(named: Named, given: Given) -> None:
    alice, bob = named("alice"), named("bob")
    await given.outbox(stream=S)
    await polls(alice)
    await polls(bob)
    assert (await polls(bob, T0 + minutes(4))).empty
    await polls(alice, T0 + minutes(4))


async def test_a_lost_session_is_taken_up_again(dsn: Dsn, named: Named, db: asyncpg.Connection) -> None:
    alice = named("alice")
    async with InstanceSession(dsn, alice, AT_ONCE) as session:
        first = session.process_id
        await session.wake.wait(0)
        await db.execute("SELECT pg_terminate_backend($1, 5000)", first)
        await until(lambda: session.lost_connections == 1 and session.held.is_set())
        assert alice.session_locked
        assert session.process_id != first
        assert session.lost_connections == 1
        assert await session.wake.wait(10), "it polls for what it did not hear of"
        assert not await lock_is_free(db, alice)


async def test_a_lock_that_is_gone_is_noticed_though_the_connection_is_not(
    dsn: Dsn, named: Named, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    alice = named("alice")
    async with InstanceSession(dsn, alice, AT_ONCE) as session:
        assert session._connection is not None
        await session._connection.execute("SELECT pg_advisory_unlock_all()")
        await until(lambda: session.lost_connections == 1 and session.held.is_set())
    assert "is lost: the lock is gone though the connection is not; reconnecting" in caplog.text


async def test_a_connection_that_falls_silent_is_given_up_and_its_lock_taken_over(
    dsn: Dsn, named: Named, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    alice = named("alice")
    async with wire(dsn) as (line, address):
        settings = SessionSettings(probe_every=0.02, probe_timeout=0.3, first_pause=0.001)
        async with InstanceSession(address, alice, settings) as session:
            first = session.process_id
            line.freeze()
            await until(lambda: session.lost_connections == 1 and session.held.is_set())
            assert session.process_id != first
            # The server had not noticed that its client was gone.
            assert await db.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", first) == 0
    assert "the connection does not answer (TimeoutError)" in caplog.text


async def test_with_a_connection_that_falls_silent_those_beside_it_are_given_up(dsn: Dsn, named: Named) -> None:
    wires: set[asyncpg.Connection] = set()
    async with asyncio.timeout(60), wire(dsn) as (line, address), open_pool(address, opened=wires.add) as pool:
        await pool.execute("SELECT 1")
        settings = SessionSettings(probe_every=0.02, probe_timeout=0.3, first_pause=0.001)
        async with InstanceSession(address, named("alice"), settings, beside=wires):
            line.freeze()
            with pytest.raises(asyncpg.PostgresConnectionError):
                await pool.execute("SELECT 1")
            await pool.execute("SELECT 1")


async def test_it_keeps_trying_while_there_is_no_server(dsn: Dsn, named: Named, db: asyncpg.Connection) -> None:
    alice = named("alice")
    async with wire(dsn) as (line, address), InstanceSession(address, alice, AT_ONCE) as session:
        line.refusing = True
        await db.execute("SELECT pg_terminate_backend($1, 5000)", session.process_id)
        await until(lambda: line.refused >= 5)
        assert not session.held.is_set()
        line.refusing = False
        await until(session.held.is_set)
        assert session.lost_connections == 1


async def test_without_a_server_it_does_not_start(dsn: Dsn, named: Named) -> None:
    async with wire(dsn) as (line, address):
        line.refusing = True
        with pytest.raises(StoreUnavailable, match="cannot connect to"):
            async with InstanceSession(address, named("alice")):
                pass


@pytest.mark.parametrize(
    ("backends", "honest", "sign"),
    [
        (1, False, "another server process answers than the one that greeted us"),
        (2, True, "two calls in a row were answered by two server processes"),
    ],
    ids=["quiet", "busy"],
)
async def test_behind_a_pooler_it_says_so_and_polls(
    dsn: Dsn,
    named: Named,
    db: asyncpg.Connection,
    given: Given,
    caplog: pytest.LogCaptureFixture,
    backends: int,
    honest: bool,
    sign: str,
) -> None:
    alice = named("alice")
    async with pooler(dsn, backends=backends, honest=honest) as address, InstanceSession(address, alice) as session:
        assert session.degraded == f"a pooler is in between: {sign}"
        assert not session.held.is_set()
        assert not session.lost.is_set()
        assert not alice.session_locked
        assert not session.wake.listening
        assert await lock_is_free(db, alice)
        (stored,) = await given.outbox()
        assert not await session.wake.wait(0.001), "only the polling floor is left"
        assert [m.message_id for m in (await polls(alice)).claimed_outbox_messages] == [stored.message_id]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage() == (
        f"instance {alice.instance.instance_id} works without a session: {session.degraded}. It polls instead of being "
        "woken, and if it dies its work is taken over only after the stale threshold. "
        "Connect directly to PostgreSQL, not through a pooler."
    )
