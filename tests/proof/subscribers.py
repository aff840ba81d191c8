"""Real faults for coordinated subscribers: three processes, twenty subscribers, writers that never stop.

At random a process is killed, or stopped and continued; sessions are terminated; the server crashes and recovers. In
the end every subscriber has the effect of every event once, in order, each under the epoch of the one who wrote it.

    python -m tests.proof.subscribers --minutes 5

It prints how long takeovers took. A seed fixes the order of the faults, not their exact times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import asyncpg

from tests.house.tree import ROOT
from tests.proof.subscriber_instance import EFFECTS, SUBSCRIBERS, names
from whippletree.message.event import NewEvent
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.event_store import EventStore
from whippletree.store.schema import migrate

INSTANCES = 3
PATIENCE = 180
_SERVER_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "60"}
_FAR_BEHIND = 200
_BEHIND = """
SELECT COALESCE((SELECT max(number) FROM whippletree.wh_event_sequence) - min(checkpoint), 0)
FROM whippletree.wh_subscribers
"""
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


@dataclass
class Report:
    """What a run did, and saw."""

    faults: dict[str, int] = field(default_factory=dict)
    takeovers: dict[str, list[float]] = field(default_factory=dict)
    events: int = 0

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        lines = [
            f"{self.events} events, {SUBSCRIBERS} subscribers, every effect once and in order",
            f"faults: {faults}",
        ]
        for name, times in sorted(self.takeovers.items()):
            lines.append(
                f"takeover after {name}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s"
                f" of {len(times)}"
            )
        return "\n".join(lines)


@dataclass
class Instance:
    process: asyncio.subprocess.Process
    instance_id: UUID


class Proof:
    """One run against a server of its own."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._rng = random.Random(seed)
        self._instances: list[Instance] = []
        self._ended = False
        self.report = Report()

    async def run(self, seconds: float) -> Report:
        await self._prepare()
        self._instances = [await self._start() for _ in range(INSTANCES)]
        writers = [asyncio.create_task(self._write(number)) for number in range(3)]
        faults: list[Callable[[], Awaitable[None]]] = [self._kill, self._stop, self._terminate, self._crash]
        try:
            end = time.monotonic() + seconds
            turn = 0
            while time.monotonic() < end or turn < len(faults):
                await _pass(self._rng.uniform(0.3, 1.5))
                # Each kind once, and then at random.
                await (faults[turn] if turn < len(faults) else self._rng.choice(faults))()
                turn += 1
            self._ended = True
            await asyncio.gather(*writers)
            await self._drained()
            await self._check()
        finally:
            for writer in writers:
                writer.cancel()
            for instance in self._instances:
                with contextlib.suppress(ProcessLookupError):
                    instance.process.kill()
                await instance.process.wait()
        return self.report

    async def _prepare(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        await migrate(connection, "whippletree")
        await connection.execute(EFFECTS)
        await connection.close()

    async def _start(self) -> Instance:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.proof.subscriber_instance", self._dsn),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            said = (await process.stdout.readline()).decode().split()
        if not said:
            # It met the crashed server, and ended as it should: start it again.
            await process.wait()
            await _pass(0.2)
            return await self._start()
        return Instance(process, UUID(said[1]))

    async def _write(self, number: int) -> None:
        """Append for ever; what became of an append whose answer was lost is for the database to know."""
        rng = random.Random(number)
        while not self._ended:
            try:
                async with asyncpg.create_pool(self._dsn, min_size=0, max_size=1) as pool:
                    store = EventStore(pool)
                    while not self._ended:
                        if await pool.fetchval(_BEHIND) > _FAR_BEHIND:
                            # A slow machine is no fault: what is appended is to be drained in the end.
                            await _pass(0.2)
                            continue
                        count = rng.randint(1, 3)
                        events = [NewEvent(event_type="Happened", payload="{}") for _ in range(count)]
                        await store.append(f"stream-{rng.randint(1, 30)}", events)
                        await _pass(rng.uniform(0.02, 0.15))
            except Exception:
                await _pass(0.1)

    async def _kill(self) -> None:
        victim = self._rng.choice(self._instances)
        victim.process.kill()
        await self._taken_over(victim, "SIGKILL")
        await victim.process.wait()
        self._instances[self._instances.index(victim)] = await self._start()

    async def _stop(self) -> None:
        victim = self._rng.choice(self._instances)
        victim.process.send_signal(signal.SIGSTOP)
        try:
            await self._taken_over(victim, "SIGSTOP")
        finally:
            victim.process.send_signal(signal.SIGCONT)

    async def _terminate(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        pids = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'whippletree%' AND pid <> pg_backend_pid()"
        )
        for row in self._rng.sample(pids, min(2, len(pids))):
            await connection.fetchval("SELECT pg_terminate_backend($1)", row[0])
        await connection.close()
        self._count("pg_terminate_backend")

    async def _crash(self) -> None:
        """A backend that dies takes the whole server down: it recovers, without any session or lock."""
        connection = await asyncpg.connect(self._dsn)
        os.kill(await connection.fetchval("SELECT pg_backend_pid()"), signal.SIGKILL)
        with contextlib.suppress(*_LOST):
            await connection.fetchval("SELECT 1")
        connection.terminate()
        self._count("server crash")
        await self._ask("SELECT 1")

    async def _taken_over(self, victim: Instance, fault: str) -> None:
        """Until nobody is held by the victim, though others stand by."""
        began = time.monotonic()
        held = await self._held_by(victim)
        async with asyncio.timeout(PATIENCE):
            while still := await self._held_by(victim):
                for _ in held - still:
                    self.report.takeovers.setdefault(fault, []).append(time.monotonic() - began)
                held &= still
                await _pass(0.02)
        for _ in held:
            self.report.takeovers.setdefault(fault, []).append(time.monotonic() - began)
        self._count(fault)

    async def _held_by(self, victim: Instance) -> set[str]:
        rows = await self._ask(
            "SELECT subscriber_name FROM whippletree.wh_subscribers WHERE holder = $1", victim.instance_id
        )
        return {row[0] for row in rows}

    async def _drained(self) -> None:
        """Until every subscriber is at the end of the feed."""
        async with asyncio.timeout(PATIENCE):
            while True:
                rows = await self._ask(
                    "SELECT count(*) FROM whippletree.wh_subscribers WHERE checkpoint = "
                    "(SELECT max(number) FROM whippletree.wh_event_sequence) AND "
                    "(SELECT max(number) FROM whippletree.wh_event_sequence) = "
                    "(SELECT count(*) FROM whippletree.wh_event_store)"
                )
                if rows[0][0] == SUBSCRIBERS:
                    return
                await _pass(0.1)

    async def _check(self) -> None:
        self.report.events = (await self._ask("SELECT count(*) FROM whippletree.wh_event_store"))[0][0]
        order = await self._ask(
            "SELECT stream_id, array_agg(version ORDER BY number) FROM whippletree.wh_event_sequence GROUP BY stream_id"
        )
        for stream, versions in order:
            assert list(versions) == list(range(1, len(versions) + 1)), f"stream {stream} is inverted or has gaps"
        for name in names():
            rows = await self._ask(
                "SELECT number, instance_id, holder, epoch FROM whippletree.effects WHERE subscriber = $1 ORDER BY id",
                name,
            )
            assert [row[0] for row in rows] == list(range(1, self.report.events + 1)), (
                f"{name}: lost, twice or disordered"
            )
            assert all(row[1] == row[2] for row in rows), f"{name}: effects of one who was not the holder"
            epochs = [row[3] for row in rows]
            assert epochs == sorted(epochs), f"{name}: effects of two holders are interleaved"
        parked = await self._ask(
            "SELECT subscriber_name, error FROM whippletree.wh_subscribers WHERE error IS NOT NULL"
        )
        assert not parked, parked

    async def _ask(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """The answer, from whichever server there is in a while."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    connection = await asyncpg.connect(self._dsn)
                    try:
                        return list(await connection.fetch(query, *arguments))
                    finally:
                        await connection.close()
                except _LOST:
                    await _pass(0.05)

    def _count(self, fault: str) -> None:
        self.report.faults[fault] = self.report.faults.get(fault, 0) + 1


async def _pass(seconds: float) -> None:
    """Let time pass between faults."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


def prove(seconds: float, seed: int) -> Report:
    """Run on a server of its own, because it is going to crash."""
    with tempfile.TemporaryDirectory(prefix="whippletree-proof-") as directory:
        # The server may run under another user, who has to get in.
        Path(directory).chmod(0o755)
        with EmbeddedPostgres(Path(directory) / "server", server_settings=_SERVER_SETTINGS) as server:
            return asyncio.run(Proof(server.dsn, seed).run(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.subscribers", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="for how long faults happen")
    parser.add_argument("--seed", type=int, default=0, help="the order of the faults")
    chosen = parser.parse_args()
    print(prove(chosen.minutes * 60, chosen.seed))  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
