"""Who owns the partitions, and who holds leases there: what the tests of joining and leaving look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from tests.scenario import Message, Worker, completion

PARTITIONS = 64


async def owners(db: asyncpg.Connection) -> dict[int, UUID | None]:
    rows = await db.fetch("SELECT partition_number, instance_id FROM wh_partitions")
    return {row["partition_number"]: row["instance_id"] for row in rows}


async def busy(db: asyncpg.Connection, as_of: datetime) -> dict[int, UUID]:
    """The partitions where somebody holds a lease, by its holder."""
    rows = await db.fetch(
        "SELECT partition_of(stream_hash, partition_count) AS partition_number, instance_id"
        " FROM wh_active_streams, wh_settings WHERE lease_expiry > $1 AND instance_id IN"
        " (SELECT instance_id FROM wh_service_instances)",
        as_of,
    )
    return {row["partition_number"]: row["instance_id"] for row in rows}


async def require_balance(db: asyncpg.Connection, workers: Sequence[Worker]) -> None:
    """Each partition has one live owner, and shares differ by at most one."""
    shares = Counter((await owners(db)).values())
    assert set(shares) == {worker.instance_id for worker in workers}
    assert max(shares.values()) - min(shares.values()) <= 1


async def partition_of(db: asyncpg.Connection, stream: UUID | str) -> int:
    number: int = await db.fetchval(
        "SELECT partition_of(stream_hash(stream_id_of($1)), partition_count) FROM wh_settings", str(stream)
    )
    return number


async def drain(workers: Sequence[Worker], as_of: datetime) -> list[Message]:
    """All that can be claimed by anybody, finished as it comes."""
    drained: list[Message] = []
    while True:
        rounds = [(worker, await worker.claims(as_of=as_of)) for worker in workers]
        for worker, claimed in rounds:
            await worker.reports(*map(completion, claimed), as_of=as_of)
            assert worker.rejected == []
            drained += claimed
        if not any(claimed for _, claimed in rounds):
            return drained
