"""A backlog that would make a careless plan expensive, and statistics that would make the planner careless."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.conftest import Connect
from tests.plans.explained import Explained
from tests.scenario import T0

STREAMS = 1_500
PER_STREAM = 4
LIMIT = 20

_MESSAGES = """
    INSERT INTO wh_messages (queue, stream_id, version, message_id, message_type, topic, payload, created_at)
    SELECT 'outbox', md5('s' || s)::uuid, v, gen_random_uuid(), 'Happened', 'topic', '{}', $3
    FROM generate_series(1, $2::integer) v, generate_series(1, $1::integer) s
"""
_ACTIVE = """
    INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)
    SELECT 'outbox', md5('s' || s)::uuid, stream_hash(md5('s' || s)::uuid),
      $2::timestamptz - s * interval '1 millisecond', 0, $2
    FROM generate_series(1, $1::integer) s
"""
_RENEW = """
    SELECT renew_leases($1, array_agg(s.queue), array_agg(s.stream_id), array_agg(s.lease_token), 300, $2)
    FROM wh_active_streams s WHERE s.instance_id = $1 HAVING count(*) > 0
"""
TABLES = ("wh_messages", "wh_active_streams", "wh_streams", "wh_partitions")


@dataclass(frozen=True)
class Backlog:
    """An instance that owns everything, and many more messages than it can take."""

    explained: Explained
    connection: asyncpg.Connection
    instance_id: UUID


@pytest.fixture(params=["analyzed", "analyzed while empty", "analyzed once drained", "never analyzed"])
async def backlog(request: pytest.FixtureRequest, connect: Connect) -> Backlog:
    connection = await connect()
    instance_id = uuid4()
    for table in TABLES:
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    if request.param == "analyzed once drained":
        # Pages without rows, which VACUUM cannot give back while a snapshot is open: few, the planner then believes.
        await fill(connection)
        await connection.execute("DELETE FROM wh_messages")
        await connection.execute("DELETE FROM wh_active_streams")
        await connection.execute("DELETE FROM wh_streams")
        await connection.execute(f"ANALYZE {', '.join(TABLES)}")
    if request.param == "analyzed while empty":
        await connection.execute(f"ANALYZE {', '.join(TABLES)}")
    await connection.execute("SELECT record_heartbeat($1, 'plans', 'test', 1, '{}', false, $2)", instance_id, T0)
    await connection.execute("SELECT own_partitions($1, NULL, $2)", instance_id, T0)
    await fill(connection)
    if request.param == "analyzed":
        await connection.execute(f"ANALYZE {', '.join(TABLES)}")
    return Backlog(await Explained.on(connection), connection, instance_id)


async def renew(connection: asyncpg.Connection, instance_id: UUID) -> None:
    """Renew every lease of the instance: that puts what it has in hand out of the way of its next claim."""
    await connection.execute(_RENEW, instance_id, T0)


async def fill(connection: asyncpg.Connection) -> None:
    await connection.execute(
        "INSERT INTO wh_streams (stream_id, outbox_version)"
        " SELECT md5('s' || s)::uuid, $2 FROM generate_series(1, $1::integer) s",
        STREAMS,
        PER_STREAM,
    )
    await connection.execute(_MESSAGES, STREAMS, PER_STREAM, T0)
    await connection.execute(_ACTIVE, STREAMS, T0)
