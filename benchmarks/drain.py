"""Claim and complete, with a no-op handler: through the Python client, and in JSON as any other language does it."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

import asyncpg

from benchmarks.backlog import empty, fill
from benchmarks.instance import LIMIT, drain_rate, instance
from benchmarks.place import Run, connected, settle
from benchmarks.table import Figure, median

_BATCH = """
    SELECT claimed_outbox_messages FROM process_work_batch(p_instance_id => $1, p_service_name => 'benchmark',
      p_host_name => 'localhost', p_process_id => 1, p_outbox_limit => 500, p_outbox_completions => $2::text::jsonb)
"""


async def measure(run: Run) -> list[Figure]:
    async with run.database() as dsn, connected(dsn) as connection, instance(dsn) as coordinator:

        async def rate(streams: int, per_stream: int | None, limit: int = LIMIT) -> float:
            await empty(connection)
            await fill(connection, streams, per_stream)
            await settle(connection)
            return await drain_rate(coordinator, limit=limit)

        many = run.size(1_000, 20)
        return [
            Figure(
                name="drain, 1,000 streams, 500 messages at a time",
                value=await median(run.repeat, lambda: rate(many, run.size(200, 20))),
                unit="messages/s",
            ),
            Figure(
                name="drain, 1,000 streams, 2,000 messages at a time",
                value=await median(run.repeat, lambda: rate(many, run.size(200, 20), 2_000)),
                unit="messages/s",
                target=70_000,
            ),
            Figure(
                name="drain, one message per stream, 500 at a time",
                value=await median(run.repeat, lambda: rate(run.size(60_000, 300), None)),
                unit="messages/s",
            ),
            Figure(
                name="drain, one message per stream, 2,000 at a time",
                value=await median(run.repeat, lambda: rate(run.size(60_000, 300), None, 2_000)),
                unit="messages/s",
                target=15_000,
            ),
            Figure(
                name="drain, 1,000 streams, 500 messages at a time, in JSON",
                value=await median(run.repeat, lambda: _in_json(run)),
                unit="messages/s",
            ),
        ]


async def _in_json(run: Run) -> float:
    async with run.database() as dsn, connected(dsn) as connection:
        streams, per_stream = run.size(1_000, 20), run.size(20, 5)
        await fill(connection, streams, per_stream)
        await settle(connection)
        return await _json_rate(connection, streams * per_stream)


async def _json_rate(connection: asyncpg.Connection, messages: int) -> float:
    instance_id, finished = uuid4(), 0
    claimed: list[dict[str, Any]] = []
    began = time.perf_counter()
    while finished < messages:
        done = [{"message_id": message["message_id"], "status": 4} for message in claimed]
        claimed = json.loads(await connection.fetchval(_BATCH, instance_id, json.dumps(done)))
        finished += len(done)
    return messages / (time.perf_counter() - began)
