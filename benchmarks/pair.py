"""Two instances in two processes on the same streams, against one; and a minute of everything at once."""

from __future__ import annotations

import asyncio
import statistics
import sys
from asyncio.subprocess import PIPE, Process

import asyncpg

from benchmarks.backlog import empty, fill
from benchmarks.place import Run, connected, settle
from benchmarks.table import Aim, Figure


async def measure(run: Run) -> list[Figure]:
    async with run.database() as dsn, connected(dsn) as connection:
        ratios = []
        for _ in range(run.repeat):
            one = await _drained(connection, dsn, 1, run)
            ratios.append(await _drained(connection, dsn, 2, run) / one)
        deadlocks = await _deadlocks(connection, dsn, run.size(60, 1))
    return [
        Figure(name="two instances against one", value=statistics.median(ratios), unit="times", target=1.3),
        Figure(name="deadlocks, two instances for a minute", value=deadlocks, unit="", aim=Aim.AT_MOST, target=0),
    ]


async def _drained(connection: asyncpg.Connection, dsn: str, processes: int, run: Run) -> float:
    """Messages per second, from the moment when all are ready until the last one is done."""
    await empty(connection)
    streams, per_stream = run.size(1_000, 20), run.size(300, 20)
    await fill(connection, streams, per_stream)
    await settle(connection)
    workers = [await _start(dsn, "drain", str(processes)) for _ in range(processes)]
    answers = await _go(workers)
    if sum(int(finished) for finished, _ in answers) != streams * per_stream:
        raise AssertionError(f"{answers} of {streams * per_stream} messages")
    return streams * per_stream / max(float(seconds) for _, seconds in answers)


async def _deadlocks(connection: asyncpg.Connection, dsn: str, seconds: int) -> float:
    await empty(connection)
    workers = [await _start(dsn, "everything", "2", str(seconds)) for _ in range(2)]
    await _go(workers)
    # Each worker's statistics are told at the latest when its session ends.
    counted = await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return float(counted)


async def _start(dsn: str, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.pair_worker", dsn, *arguments, stdin=PIPE, stdout=PIPE
    )


async def _go(workers: list[Process]) -> list[list[str]]:
    """Let the workers start together, once all of them are ready, and collect what they say at the end."""
    for worker in workers:
        if await _line(worker) != ["ready"]:
            raise AssertionError("a worker did not start")
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
        await worker.stdin.drain()
    answers = [await _line(worker) for worker in workers]
    for worker in workers:
        if await worker.wait() != 0:
            raise AssertionError(f"a worker ended with {worker.returncode}")
    return answers


async def _line(worker: Process) -> list[str]:
    assert worker.stdout is not None
    return (await worker.stdout.readline()).decode().split()
