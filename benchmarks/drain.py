"""Claim and complete, through the Python client, with a no-op handler."""

from __future__ import annotations

from benchmarks.backlog import empty, fill
from benchmarks.instance import LIMIT, drain_rate, instance
from benchmarks.place import Run, connected, settle
from benchmarks.table import Figure, median


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
        ]
