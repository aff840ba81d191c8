"""A claim of events costs what it takes, however many events and streams there are, whatever the planner believes."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.conftest import Connect
from tests.plans.conftest import renew
from tests.plans.explained import Explained, Plan
from tests.scenario import T0

STREAMS = 800
PER_STREAM = 12
RUN = 5
LIMIT = 20

_TABLES = ("wh_event_store", "wh_receptor_log", "wh_active_streams", "wh_partitions")
_FILL = (
    """INSERT INTO wh_event_store (stream_id, version, event_id, event_type, payload, created_at, arrival)
       SELECT md5('s' || s)::uuid, v, md5(s || '/' || v)::uuid, 'OrderPlaced', '{}', $1, arrival()
       FROM generate_series(1, 12) v, generate_series(1, 800) s""",
    """INSERT INTO wh_receptor_log (receptor_name, stream_id, version, event_id, created_at)
       SELECT 'mailer', stream_id, version, event_id, $1 FROM wh_event_store WHERE version % 2 = 0""",
    """INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)
       SELECT q, md5('s' || s)::uuid, stream_hash(md5('s' || s)::uuid),
         $1::timestamptz - s * interval '1 millisecond', 1, $1
       FROM generate_series(1, 800) s, unnest(ARRAY['perspective/summary', 'receptor/mailer']) q""",
)
_CLAIM = "SELECT * FROM claim_event_work($1, $2, $3, 300, $4, 10, '-infinity', $5)"


@pytest.fixture(params=["analyzed", "analyzed while empty", "never analyzed"])
async def instance_id(request: pytest.FixtureRequest, connect: Connect) -> tuple[asyncpg.Connection, UUID]:
    """An instance that owns everything, and many more events than it can take."""
    connection, instance_id = await connect(), uuid4()
    for table in _TABLES:
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    await connection.execute("SELECT record_heartbeat($1, 'plans', 'test', 1, '{}', false, $2)", instance_id, T0)
    await connection.execute("SELECT own_partitions($1, NULL, $2)", instance_id, T0)
    if request.param == "analyzed while empty":
        await connection.execute(f"ANALYZE {', '.join(_TABLES)}")
    for statement in _FILL:
        await connection.execute(statement, T0)
    if request.param == "analyzed":
        await connection.execute(f"ANALYZE {', '.join(_TABLES)}")
    return connection, instance_id


@pytest.mark.parametrize("calls", [1, 12], ids=["first call", "after many calls"])
@pytest.mark.parametrize("queue", ["perspective/summary", "receptor/mailer"])
async def test_a_claim_of_events_reads_no_more_than_it_takes(
    instance_id: tuple[asyncpg.Connection, UUID], queue: str, calls: int
) -> None:
    connection, instance = instance_id
    explained = await Explained.on(connection)
    plans: list[Plan] = []
    for _ in range(calls):
        await renew(connection, instance)
        plans = await explained.plans(_CLAIM, instance, queue, LIMIT, RUN, T0)
    (pick,) = [plan for plan in plans if "candidate AS MATERIALIZED" in plan.statement]
    (lock,) = pick.steps("LockRows")
    assert not [node for node in lock.below() if "Sort" in node.kind]
    (ready,) = [node for node in lock.below() if node.table == "wh_active_streams"]
    assert (ready.kind, ready.index) == ("Index Scan", "wh_active_streams_ready")

    assert "ready_at <=" in ready.condition
    assert not [plan.statement for plan in plans if plan.asks]

    steps = [node for plan in plans for table in _TABLES for node in plan.steps(table=table)]
    assert {node.table for node in steps} >= {"wh_active_streams", "wh_event_store"}
    for node in steps:
        assert node.kind in ("Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable", "LockRows"), node.facts
        assert node.rows_read <= LIMIT * RUN, node.facts


@pytest.mark.parametrize("calls", [1, 12], ids=["first call", "after many calls"])
async def test_reports_on_events_in_json_are_looked_up_by_key(
    instance_id: tuple[asyncpg.Connection, UUID], calls: int
) -> None:
    connection, instance = instance_id
    explained = await Explained.on(connection)
    events = await connection.fetch("SELECT event_id::text FROM wh_event_store LIMIT $1", LIMIT)
    reports = json.dumps([{"event_id": row[0], "receptor_name": "mailer"} for row in events])
    plans: list[Plan] = []
    for _ in range(calls):
        plans = await explained.plans(
            "SELECT read_event_reports($1, 'receptor', 'complete', $2::text::jsonb)", instance, reports
        )
    steps = [node for plan in plans for table in _TABLES for node in plan.steps(table=table)]
    assert {node.table for node in steps} == {"wh_active_streams", "wh_event_store", "wh_receptor_log"}
    for node in steps:
        assert node.kind in ("Index Scan", "Index Only Scan"), node.facts
        assert node.rows_read <= LIMIT, node.facts
