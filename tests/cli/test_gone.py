"""Everybody is dead, and nobody is left to remove them: `status` and `why` see it all the same."""

from __future__ import annotations

import json
from uuid import UUID

import asyncpg
import pytest

from tests.cli.conftest import Command
from tests.conftest import Connect
from tests.scenario import RowsWorker, S
from tests.shop import OrderPlaced, Pool, Shop
from whippletree.claim.batch import WorkReport
from whippletree.message.ids import new_instance_id


@pytest.fixture
async def session(connect: Connect) -> asyncpg.Connection:
    return await connect()


@pytest.fixture
async def instance(db: asyncpg.Connection, session: asyncpg.Connection) -> UUID:
    """One that works the outbox, holds its lock in its session, and last beat two seconds ago."""
    instance_id = new_instance_id()
    assert await session.fetchval("SELECT take_session_lock($1, NULL)", instance_id)
    await db.execute(
        "SELECT record_heartbeat($1, 'orders', 'host-2', 4711, '{}', true, clock_timestamp() - interval '2 s', $2)",
        instance_id,
        ["outbox"],
    )
    await db.execute("SELECT own_partitions($1, NULL, clock_timestamp())", instance_id)
    await db.execute("INSERT INTO wh_outbox (stream_key, message_type, payload) VALUES ('order-17', 'Placed', '{}')")
    return instance_id


@pytest.mark.usefixtures("instance")
async def test_an_instance_whose_session_has_ended_is_gone(whippletree: Command, session: asyncpg.Connection) -> None:
    assert "working" in (await whippletree("status", "--check")).stdout
    assert "it is for orders on host-2:4711, which last beat" in (await whippletree("why", "order-17")).stdout
    await session.close()
    status = await whippletree("status", "--check")
    assert status.returncode == 1
    assert "critical: instance host-2:4711 of orders is gone, and nobody has taken over from it" in status.stdout
    assert "critical: nobody works outbox, and work waits there" in status.stdout
    told = (await whippletree("why", "order-17")).stdout
    assert "belongs to orders on host-2:4711, which last beat" in told
    assert "and is gone: no live instance works outbox; start one with `whippletree run`" in told


async def test_an_instance_that_is_stopped_is_silent(
    whippletree: Command, instance: UUID, db: asyncpg.Connection
) -> None:
    await db.execute("UPDATE wh_service_instances SET last_heartbeat_at = clock_timestamp() - interval '45 s'")
    status = await whippletree("status", "--check")
    assert status.returncode == 1
    assert "critical: instance host-2:4711 of orders has not beaten for 4" in status.stdout
    seen = json.loads((await whippletree("status", "--json")).stdout)
    assert [(i["instance_id"], i["gone"]) for i in seen["instances"]] == [(str(instance), False)]


async def test_whoever_works_a_perspective_works_its_rebuild(
    whippletree: Command, pool: Pool, db: asyncpg.Connection
) -> None:
    shop = Shop(pool)
    await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await db.execute("SELECT start_rebuild('order_summary')")
    nobody = "nobody works perspective/order_summary@2, and work waits there"
    assert nobody in (await whippletree("status")).stdout
    alice = RowsWorker(pool, "orders")
    await alice.coordinator.process_work_batch(WorkReport(limits={"perspective/order_summary": 0}))
    assert "all is well" in (await whippletree("status")).stdout
