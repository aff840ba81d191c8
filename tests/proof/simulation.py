"""A seeded simulation of the coordinator: virtual instances and a virtual clock on a real PostgreSQL.

A seed fixes the whole schedule: who stores what, who claims, completes, fails, crashes, sleeps through its lease, loses
an answer, where the clock jumps. After every step the committed state is checked, and the ledger compares what changed
with what the step had a right to change. In the end all faults stop, and everything has to drain.

A failure prints its seed and its schedule. For a longer proof, or to replay one seed:

    python -m tests.proof.simulation --from 0 --seeds 40000
    python -m tests.proof.simulation --from 1234 --seeds 1 --verbose

The database is $WHIPPLETREE_TEST_DSN, or an embedded server of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import asyncpg

from tests.proof.simulation_schedule import Schedule
from tests.proof.simulation_world import open_world
from whippletree.settings import Dsn
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.schema import migrate

_SERVER_SETTINGS = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "256MB"}


class ScheduleFailed(AssertionError):
    """A schedule broke the protocol. The message holds the seed, the schedule and the violation."""


async def simulate(dsn: Dsn, seeds: Iterable[int], *, tell: Callable[[str], object] | None = None) -> int:
    """Run one schedule per seed in the database, which has the schema and nobody else in it; how many steps it took.

    Raises `ScheduleFailed` at the first that breaks the protocol. `tell` is given those that do not.
    """
    steps = 0
    async with open_world(dsn) as connections:
        for seed in seeds:
            schedule = Schedule(connections, seed)
            try:
                await schedule.run()
            except Exception as error:
                told = "\n  ".join(schedule.steps)
                raise ScheduleFailed(f"seed {seed}:\n  {told}\n{type(error).__name__}: {error}") from error
            steps += len(schedule.steps)
            if tell is not None:
                tell(f"seed {seed}:\n  " + "\n  ".join(schedule.steps))
    return steps


async def _prove(dsn: Dsn, seeds: range, verbose: bool) -> int:
    connection = await asyncpg.connect(dsn.reveal())
    await migrate(connection, "whippletree")
    await connection.close()
    return await simulate(dsn, seeds, tell=print if verbose else None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.simulation", description="Run seeded schedules.")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--dsn", help="an empty database of its own; without it an embedded server is used")
    parser.add_argument("--verbose", action="store_true", help="print every schedule")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    try:
        if chosen.dsn:
            steps = asyncio.run(_prove(Dsn(chosen.dsn), seeds, chosen.verbose))
        else:
            with tempfile.TemporaryDirectory(prefix="whippletree-proof-") as directory:
                # The server may run under another user, who has to get in.
                Path(directory).chmod(0o755)
                with EmbeddedPostgres(Path(directory) / "server", server_settings=_SERVER_SETTINGS) as server:
                    steps = asyncio.run(_prove(Dsn(server.dsn), seeds, chosen.verbose))
    except ScheduleFailed as failure:
        sys.exit(str(failure))
    print(f"{len(seeds)} schedules, {steps} steps, nothing wrong")  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
