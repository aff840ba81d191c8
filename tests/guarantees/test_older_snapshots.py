"""Callers under REPEATABLE READ or SERIALIZABLE see the past: what they store is found, or they begin again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import S
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.envelope import Queue
from whippletree.message.ids import new_message_id
from whippletree.message.outcome import MessageCompletion, PerspectiveCheckpointCompletion

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Stores: TypeAlias = Callable[[asyncpg.Connection], Awaitable[Any]]

_BEGIN_AGAIN = "40001"
_BATCH = """
SELECT store_{queue}(ARRAY[$1, $1]::uuid[], '{{null,null}}', ARRAY[$2, $3]::uuid[], '{{Happened,Happened}}', '{{t,t}}',
  '{{1,2}}', '{{null,null}}', '{{null,null}}', '{{null,null}}', '{{null,null}}')
"""
_APPEND = """
SELECT append_events(ARRAY[$1]::uuid[], '{null}', ARRAY[$2]::uuid[], '{Happened}', '{1}', '{1}', '{null}', '{null}',
  '{null}')
"""
_INSERT = "INSERT INTO wh_outbox (stream_id, message_id, message_type, payload) VALUES ($1, $2, 'Happened', '1')"


async def _insert(connection: asyncpg.Connection) -> None:
    await connection.execute(_INSERT, S, new_message_id())


async def _outbox(connection: asyncpg.Connection) -> None:
    await connection.fetchval(_BATCH.format(queue="outbox"), S, new_message_id(), new_message_id())


async def _inbox(connection: asyncpg.Connection) -> None:
    await connection.fetchval(_BATCH.format(queue="inbox"), S, new_message_id(), new_message_id())


async def _append(connection: asyncpg.Connection) -> None:
    await connection.fetchval(_APPEND, S, new_message_id())


WAYS: dict[str, Stores] = {"insert": _insert, "outbox": _outbox, "inbox": _inbox, "events": _append}
PERSPECTIVE = "perspective/summary"
EVERYTHING = {Queue.OUTBOX: 100, Queue.INBOX: 100, PERSPECTIVE: 100, "receptor/mail": 100}


@pytest.fixture(params=["repeatable_read", "serializable"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAYS)
def store(request: pytest.FixtureRequest) -> Stores:
    return WAYS[request.param]


@pytest.fixture
def worker(pool: Pool) -> WorkCoordinator:
    return WorkCoordinator(pool, ServiceInstance(service_name="worker"))


async def _works(worker: WorkCoordinator) -> list[int]:
    """The versions that come, until none do, in order; everything is finished."""
    versions: list[int] = []
    # The first poll joins.
    outcomes: list[Any] = []
    for _ in range(20):
        batch = await worker.process_work_batch(WorkReport(outcomes=outcomes, limits=EVERYTHING))
        assert not batch.rejected
        messages = [*batch.claimed_outbox_messages, *batch.claimed_inbox_messages]
        outcomes = [MessageCompletion(message.message_id) for message in messages]
        versions += [message.version for message in messages]
        for work in batch.claimed_perspective_work:
            outcomes.append(PerspectiveCheckpointCompletion(work.stream_id, "summary", work.version))
            versions += range(work.checkpoint + 1, work.version + 1)
    return versions


async def _stored_or_told(caller: asyncpg.Connection, store: Stores, isolation: str, meanwhile: Awaitable[Any]) -> bool:
    """Store in a transaction that began before something else happened. False when it has to begin again."""
    try:
        async with caller.transaction(isolation=isolation):  # type: ignore[arg-type]
            await caller.fetch("SELECT FROM wh_messages")
            await meanwhile
            await store(caller)
    except asyncpg.PostgresError as error:
        assert error.sqlstate == _BEGIN_AGAIN
        return False
    return True


async def test_what_is_stored_under_an_older_snapshot_keeps_its_order_and_is_found(
    worker: WorkCoordinator, db: asyncpg.Connection, connect: Connect, store: Stores, isolation: str
) -> None:
    """Meanwhile its stream was drained and its row removed, or somebody stored into it, or both."""
    await db.execute("SELECT register_perspective('summary', '{Happened}')")
    caller = await connect()
    worked: list[int] = []

    async def drained() -> None:
        worked.extend(await _works(worker))

    async def stored_and_drained() -> None:
        await store(db)
        await drained()

    for meanwhile in (lambda: store(db), drained, stored_and_drained, drained):
        await store(db)
        if not await _stored_or_told(caller, store, isolation, meanwhile()):
            await store(caller)
    await drained()
    assert worked == list(range(1, len(worked) + 1))
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0
    assert await db.fetchval(_LAST) == len(worked)


_LAST = "SELECT greatest(event_version, outbox_version, inbox_version) FROM wh_streams"


@pytest.mark.parametrize(
    "registers",
    [
        "SELECT register_perspective('summary', '{Happened}')",
        "SELECT register_receptor('mail', '{Happened}')",
        "SELECT register_perspective('summary', '{Happened}'), register_receptor('mail', '{.*}')",
    ],
)
@pytest.mark.parametrize("known", [True, False])
async def test_what_was_registered_since_is_not_hidden_from_an_event(
    db: asyncpg.Connection, connect: Connect, isolation: str, registers: str, known: bool
) -> None:
    """It would have no work for those of whom its transaction does not know, and nobody would ever miss it."""
    if known:
        await _append(db)
    caller = await connect()
    if not await _stored_or_told(caller, _append, isolation, db.execute(registers)):
        await _append(caller)
    appended = await db.fetchval("SELECT max(version) FROM wh_event_store")
    expected = {name for name in ("perspective/summary", "receptor/mail") if name.split("/")[1] in registers}
    for queue in expected:
        assert await db.fetchval(
            "SELECT work_through($1, $2, $3, 1) FROM wh_active_streams WHERE queue = $1", queue, S, appended - 1
        )


async def test_what_is_stored_under_an_older_snapshot_lies_in_a_partition_that_there_is(
    worker: WorkCoordinator, db: asyncpg.Connection, connect: Connect, store: Stores, isolation: str
) -> None:
    await db.execute("SELECT register_perspective('summary', '{Happened}')")
    caller = await connect()
    if not await _stored_or_told(caller, store, isolation, db.execute("SELECT change_partition_count(1)")):
        await store(caller)
    assert (await _works(worker))[:1] == [1]


async def test_who_stores_does_not_wait_for_a_change_of_the_number_of_partitions(
    worker: WorkCoordinator, db: asyncpg.Connection, connect: Connect, store: Stores
) -> None:
    await db.execute("SELECT register_perspective('summary', '{Happened}')")
    changing, caller = await connect(), await connect()
    async with asyncio.timeout(60), changing.transaction():
        await changing.execute("SELECT change_partition_count(1)")
        await store(caller)
    assert (await _works(worker))[:1] == [1]


async def test_a_change_of_the_number_of_partitions_does_not_wait_for_who_stores(
    worker: WorkCoordinator, db: asyncpg.Connection, connect: Connect, store: Stores, isolation: str
) -> None:
    await db.execute("SELECT register_perspective('summary', '{Happened}')")
    changing, caller = await connect(), await connect()
    async with asyncio.timeout(60), caller.transaction(isolation=isolation):  # type: ignore[arg-type]
        await store(caller)
        await changing.execute("SELECT change_partition_count(1)")
    worked = await _works(worker)
    assert worked == list(range(1, await db.fetchval(_LAST) + 1))
