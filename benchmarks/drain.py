"""Claim and complete, with a no-op handler: through the Python client, and in JSON as any other language does it."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from typing import Any
from uuid import uuid4

import asyncpg

from benchmarks.backlog import empty, fill
from benchmarks.instance import LIMIT, drain_rate, instance
from benchmarks.place import Run, connected, settle
from benchmarks.table import Figure

_BATCH = """
    SELECT claimed_outbox_messages FROM process_work_batch(p_instance_id => $1, p_service_name => 'benchmark',
      p_host_name => 'localhost', p_process_id => 1, p_outbox_limit => 500, p_outbox_completions => $2::text::jsonb)
"""

_TARGETS = {
    "drain, 1,000 streams, 2,000 messages at a time": 70_000,
    "drain, one message per stream, 2,000 at a time": 15_000,
}


async def measure(run: Run) -> list[Figure]:
    async with run.database() as dsn, connected(dsn) as connection, instance(dsn) as coordinator:

        async def rate(streams: int, per_stream: int | None, limit: int = LIMIT) -> float:
            await empty(connection)
            await fill(connection, streams, per_stream)
            await settle(connection)
            return await drain_rate(coordinator, limit=limit)

        many, alone = (run.size(1_000, 20), run.size(200, 20)), (run.size(60_000, 300), None)
        rates: dict[str, list[float]] = defaultdict(list)
        # In turns, so that a disturbance falls on all of them.
        for _ in range(run.repeat):
            rates["drain, 1,000 streams, 500 messages at a time"].append(await rate(*many))
            rates["drain, 1,000 streams, 2,000 messages at a time"].append(await rate(*many, 2_000))
            rates["drain, one message per stream, 500 at a time"].append(await rate(*alone))
            rates["drain, one message per stream, 2,000 at a time"].append(await rate(*alone, 2_000))
            rates["drain, 1,000 streams, 500 messages at a time, in JSON"].append(await _in_json(run))
        return [
            Figure(name=name, value=statistics.median(measured), unit="messages/s", target=_TARGETS.get(name))
            for name, measured in rates.items()
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
