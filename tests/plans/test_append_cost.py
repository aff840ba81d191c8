"""What an append costs does not grow with its stream, with the number of streams, nor with the registered patterns."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from tests.conftest import Connect
from tests.plans.explained import Explained
from tests.scenario import T0, S

_EVENTS = """
    INSERT INTO wh_event_store (stream_id, version, event_id, event_type, payload, created_at, arrival)
    SELECT $1, v, gen_random_uuid(), 'OrderPlaced', '{}', $3, arrival() FROM generate_series(1, $2::integer) v
"""
_STREAMS = """
    INSERT INTO wh_streams (stream_id, event_version)
    SELECT md5('s' || n)::uuid, 1 FROM generate_series(1, $1::integer) n
"""
_ACTIVE = """
    INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)
    SELECT q, md5('s' || n)::uuid, n % 10000, $2, 0, $2
    FROM generate_series(1, $1::integer) n, unnest(ARRAY['perspective/summary', 'perspective/stats']) q
"""
_APPEND = "SELECT append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, '{}', '{}', $10)"


async def _rows_read(connection: asyncpg.Connection, explained: Explained) -> float:
    """How many rows of tables all statements of one append look at."""
    ids = [UUID(int=n) for n in range(await connection.fetchval("SELECT count(*) FROM wh_event_store") + 1, 10**9)[:2]]
    nothing: list[None] = [None, None]
    plans = await explained.plans(
        _APPEND, [S, S], nothing, ids, ["OrderPlaced"] * 2, [1, 1], ["{}"] * 2, nothing, nothing, nothing, T0
    )
    assert plans
    return sum(step.rows_read for plan in plans for step in plan.steps("Scan", "wh_"))


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never analyzed"])
async def test_an_append_looks_at_as_many_rows_whatever_there_is(connect: Connect, analyzed: bool) -> None:
    connection = await connect()
    await connection.execute("SELECT register_perspective('summary', '{OrderPlaced}', $1)", T0)
    await connection.execute("SELECT register_perspective('stats', '{.*Order.*}', $1)", T0)
    explained = await Explained.on(connection)
    await _rows_read(connection, explained)
    few = await _rows_read(connection, explained)

    await connection.execute("DELETE FROM wh_event_store")
    await connection.execute(_EVENTS, S, 3_000, T0)
    await connection.execute("UPDATE wh_streams SET event_version = 3000")
    await connection.execute(_STREAMS, 3_000)
    await connection.execute(_ACTIVE, 3_000, T0)
    await connection.execute(
        "INSERT INTO wh_perspective_mappings SELECT 'p' || n, 'Other' || n FROM generate_series(1, 500) n"
    )
    if analyzed:
        await connection.execute("ANALYZE")
    many = await _rows_read(connection, explained)
    assert many <= few
