"""A call that had to wait reads the clock when the wait is over: leases are whole, and times are true."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeAlias

import asyncpg
import pytest

from tests.conftest import Connect
from tests.guarantees.storing import outgoing
from tests.scenario import Given, S, minutes, seconds
from tests.waiting import until_somebody_waits
from whippletree.message.envelope import OutboxMessage
from whippletree.message.ids import new_instance_id
from whippletree.store.new_messages import as_json

Call: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]
Wait: TypeAlias = Callable[[str, Awaitable[Any]], Awaitable[datetime]]

_WRITERS_ROW = "SELECT FROM wh_streams WHERE stream_id = $1 FOR UPDATE"
_WORKERS_ROW = "SELECT FROM wh_active_streams WHERE stream_id = $1 FOR UPDATE"
_OTHER = "another"


@pytest.fixture
async def call(connect: Connect) -> Call:
    """One instance's process_work_batch, by the clock of the server."""
    connection, instance = await connect(), new_instance_id()

    async def run(**arguments: Any) -> dict[str, Any]:
        names = "".join(f", p_{name} => ${place}" for place, name in enumerate(arguments, 2))
        row = await connection.fetchrow(
            f"SELECT * FROM process_work_batch($1, 'shop', 'here', 1{names})",
            instance,
            *arguments.values(),
        )
        assert row is not None
        answer = {name: json.loads(value) for name, value in row.items()}
        assert answer["rejected"] == []
        return answer

    return run


@pytest.fixture
def wait(db: asyncpg.Connection, connect: Connect) -> Wait:
    """Let a call wait for a lock; the time at which the lock was given back is returned."""

    async def run(lock: str, call: Awaitable[Any]) -> datetime:
        holder = await connect()
        async with asyncio.timeout(60):
            async with holder.transaction():
                await holder.execute(lock, S)
                waiting = asyncio.ensure_future(call)
                await until_somebody_waits(db)
                over: datetime = await holder.fetchval("SELECT clock_timestamp()")
            await waiting
        return over

    return run


def _new(*messages: OutboxMessage) -> str:
    return as_json(messages)


async def _row(db: asyncpg.Connection, stream: str = str(S)) -> asyncpg.Record:
    row = await db.fetchrow("SELECT * FROM wh_active_streams WHERE stream_id = stream_id_of($1)", stream)
    assert row is not None
    return row


async def test_a_lease_lasts_its_time_from_the_end_of_the_wait(
    given: Given, call: Call, wait: Wait, db: asyncpg.Connection
) -> None:
    now = await db.fetchval("SELECT clock_timestamp()")
    await given.outbox(as_of=now)
    await given.outbox(stream=_OTHER, as_of=now)
    over = await wait(_WRITERS_ROW, call(new_outbox_messages=_new(outgoing()), lease_seconds=2.0))
    for stream in (str(S), _OTHER):
        assert (await _row(db, stream))["lease_expiry"] >= over + seconds(2)


async def test_a_renewed_lease_lasts_its_time_from_the_end_of_the_wait(
    given: Given, call: Call, wait: Wait, db: asyncpg.Connection
) -> None:
    await given.outbox(as_of=await db.fetchval("SELECT clock_timestamp()"))
    (held,) = (await call())["claimed_outbox_messages"]
    over = await wait(_WORKERS_ROW, call(renew_outbox_lease_ids=json.dumps([held]), lease_seconds=2.0))
    row = await _row(db)
    assert row["lease_expiry"] >= over + seconds(2)
    assert row["ready_at"] == row["lease_expiry"]


async def test_a_retry_waits_its_time_from_the_end_of_the_wait(
    given: Given, call: Call, wait: Wait, db: asyncpg.Connection
) -> None:
    await given.outbox(as_of=await db.fetchval("SELECT clock_timestamp()"))
    (held,) = (await call())["claimed_outbox_messages"]
    failed = json.dumps([{**held, "error": "boom", "retry_seconds": 60}])
    over = await wait(_WORKERS_ROW, call(outbox_failures=failed))
    assert (await _row(db))["ready_at"] >= over + minutes(1)


async def test_what_follows_a_finished_message_is_ready_since_the_end_of_the_wait(
    given: Given, call: Call, wait: Wait, db: asyncpg.Connection
) -> None:
    """Were it ready since earlier, it would lie behind those who have looked further meanwhile."""
    await given.outbox(count=2, as_of=await db.fetchval("SELECT clock_timestamp()"))
    (held,) = (await call(outbox_limit=1))["claimed_outbox_messages"]
    done = json.dumps([{**held, "status": 2}])
    over = await wait(_WORKERS_ROW, call(outbox_completions=done, flags=["skip_claim"]))
    row = await _row(db)
    assert row["head_version"] == 1
    assert row["ready_at"] >= over


@pytest.mark.parametrize("count", [1, 2])
async def test_a_message_is_as_young_as_its_version(
    given: Given, call: Call, wait: Wait, db: asyncpg.Connection, count: int
) -> None:
    await given.outbox(as_of=await db.fetchval("SELECT clock_timestamp()"))
    new = _new(*[outgoing() for _ in range(count)])
    over = await wait(_WRITERS_ROW, call(new_outbox_messages=new, flags=["skip_claim"]))
    assert await db.fetchval("SELECT created_at FROM wh_outbox WHERE version = 2") >= over
