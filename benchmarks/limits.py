"""What the same server can do at all: bare SQL without any of our rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks.backlog import PAYLOAD
from benchmarks.place import Run, connected
from benchmarks.table import Figure, median

BATCH = 500

_TABLE = """
    DROP TABLE IF EXISTS bare;
    CREATE TABLE bare (id bigint PRIMARY KEY, moved integer NOT NULL DEFAULT 0, payload json NOT NULL)
    WITH (fillfactor = 70)
"""


async def measure(run: Run) -> list[Figure]:
    rows = run.size(100_000, 1_000)
    commits = run.size(2_000, 40)
    async with run.database() as dsn, connected(dsn) as connection:

        async def copied() -> float:
            await connection.execute(_TABLE)
            return await _rate(rows, lambda: _copy(connection, rows))

        async def batches(statement: str) -> float:
            await connection.execute(_TABLE)
            await _copy(connection, rows)
            await connection.execute("VACUUM (ANALYZE) bare")
            return await _rate(rows, lambda: _in_batches(connection, statement, rows))

        async def committed(clients: int) -> float:
            await connection.execute(_TABLE)
            return await commit_rate(dsn, clients, commits)

        update = "UPDATE bare SET moved = moved + 1 WHERE id > $1 AND id <= $2"
        delete = "DELETE FROM bare WHERE id > $1 AND id <= $2"
        return [
            Figure(name="bare COPY", value=await median(run.repeat, copied), unit="rows/s"),
            Figure(
                name="bare HOT update, batches of 500",
                value=await median(run.repeat, lambda: batches(update)),
                unit="rows/s",
            ),
            Figure(
                name="bare delete, batches of 500",
                value=await median(run.repeat, lambda: batches(delete)),
                unit="rows/s",
            ),
            Figure(name="bare commits, 1 client", value=await median(run.repeat, lambda: committed(1)), unit="/s"),
            Figure(name="bare commits, 8 clients", value=await median(run.repeat, lambda: committed(8)), unit="/s"),
        ]


async def commit_rate(dsn: str, clients: int, commits: int) -> float:
    """Transactions of one inserted row per second."""
    async with asyncpg.create_pool(dsn, min_size=clients, max_size=clients) as pool:

        async def client(first: int) -> None:
            async with pool.acquire() as connection:
                for number in range(first, commits, clients):
                    await connection.execute(
                        "INSERT INTO whippletree.bare (id, payload) VALUES ($1, $2)", number, PAYLOAD
                    )

        async def all_clients() -> None:
            await asyncio.gather(*(client(first) for first in range(clients)))

        return await _rate(commits, all_clients)


async def _copy(connection: asyncpg.Connection, rows: int) -> None:
    records = [(number, 0, PAYLOAD) for number in range(1, rows + 1)]
    await connection.copy_records_to_table("bare", records=records, columns=["id", "moved", "payload"])


async def _in_batches(connection: asyncpg.Connection, statement: str, rows: int) -> None:
    prepared = await connection.prepare(statement)
    for first in range(0, rows, BATCH):
        await prepared.fetch(first, first + BATCH)


async def _rate(count: int, work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return count / (time.perf_counter() - began)
