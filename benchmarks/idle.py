"""A poll that finds nothing, beside many parked streams and other instances: what it writes, and how long it takes."""

from __future__ import annotations

import asyncio
import statistics

import asyncpg

from benchmarks.backlog import PARKED, fill
from benchmarks.instance import instance
from benchmarks.place import Run, connected, settle
from benchmarks.table import Aim, Figure
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator

POLLS = 50

_OTHERS = """
    INSERT INTO wh_service_instances (instance_id, service_name, host_name, process_id, started_at, last_heartbeat_at)
    SELECT gen_random_uuid(), 'benchmark', 'elsewhere', n, clock_timestamp(), clock_timestamp()
    FROM generate_series(1, $1::integer) n
"""
_TIME = """
    SELECT calls, total_time FROM pg_stat_user_functions
    WHERE schemaname = current_schema() AND funcname = 'process_work'
"""


async def measure(run: Run) -> list[Figure]:
    async with run.database() as dsn, connected(dsn) as connection:
        await fill(connection, run.size(100_000, 100), 1, ready=PARKED)
        await connection.execute(_OTHERS, run.size(30, 3))
        await settle(connection)
        async with instance(dsn, track_functions="pl") as coordinator:
            # An instance writes a heartbeat once a second; so many polls fit in between.
            written = [await _bytes_written(connection, coordinator) for _ in range(2 * run.repeat + 1)]
            taken = await _milliseconds(connection, coordinator, run.size(500, 20))
    return [
        Figure(name="idle poll, WAL", value=statistics.median(written), unit="bytes", aim=Aim.AT_MOST, target=0),
        Figure(name="idle poll, time in the database", value=taken, unit="ms", aim=Aim.UNDER, target=1),
    ]


async def _bytes_written(connection: asyncpg.Connection, coordinator: WorkCoordinator) -> float:
    await coordinator.process_work_batch(WorkReport())
    before = await connection.fetchval("SELECT pg_current_wal_insert_lsn()::text")
    for _ in range(POLLS):
        await coordinator.process_work_batch(WorkReport())
    written = await connection.fetchval("SELECT pg_current_wal_insert_lsn() - $1::text::pg_lsn", before)
    return float(written) / POLLS


async def _milliseconds(connection: asyncpg.Connection, coordinator: WorkCoordinator, polls: int) -> float:
    calls, milliseconds = await _spent(connection, coordinator, 1)
    for _ in range(polls):
        await coordinator.process_work_batch(WorkReport())
    later_calls, later_milliseconds = await _spent(connection, coordinator, calls + polls)
    return (later_milliseconds - milliseconds) / (later_calls - calls)


async def _spent(connection: asyncpg.Connection, coordinator: WorkCoordinator, calls: int) -> tuple[int, float]:
    """The server tells its figures now and then, when a session has been quiet; before version 15, in its next call."""
    for _ in range(300):
        row = await connection.fetchrow(_TIME)
        if row is not None and row["calls"] >= calls:
            return row["calls"], row["total_time"]
        await asyncio.sleep(0.1)
        await coordinator.process_work_batch(WorkReport())
    raise AssertionError("the server does not tell how long its functions take; see track_functions")
