"""An outage of the transport, with a real NATS server that is killed and started again, while messages are stored.

    python -m tests.proof.outage --seconds 60

Meanwhile the relay asks now and then whether the server is back, no message costs an attempt, and nothing spins. In the
end every message has arrived, once and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg

from tests.transports.bus import RECEIVER, open_bus
from tests.transports.mail import dead_letters, order, send, streams_of, until_all_have_left, until_there_are
from tests.transports.relay import coordinator_of
from tests.waiting import until
from whippletree.message.envelope import OutboxMessage
from whippletree.settings import Dsn
from whippletree.store.database import open_pool
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.schema import migrate
from whippletree.work.loop import LoopSettings, WorkLoop
from whippletree.work.outage import BackOff
from whippletree.work.outbox_worker import OutboxWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an outage was like."""

    seconds: float
    messages: int
    probes: int
    batches: int
    """Calls to the database that the relay made meanwhile."""
    processor_seconds: float

    def __str__(self) -> str:
        return (
            f"down for {self.seconds:.1f} s: {self.messages} messages arrived, each once and in order, without an "
            f"attempt; {self.probes} probes, {self.batches} work batches, {self.processor_seconds:.1f} s of processor"
        )


async def prove(
    pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, directory: Path, *, seconds: float, back_off: BackOff
) -> Report:
    """Raises when a promise is broken. The schemas of both services are there."""
    streams = [uuid4() for _ in range(10)]
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(open_bus("nats", pool, directory))
        coordinator = coordinator_of(pool)
        relay = OutboxWorker(bus.transport(coordinator), back_off=back_off)
        loop = WorkLoop(coordinator, [relay], LoopSettings(polling_interval=back_off.longest_pause))
        await stack.enter_async_context(_running(loop))
        await stack.enter_async_context(bus.receiving())
        sent = await _store(db, streams)
        await until_all_have_left(db)

        async with bus.outage():
            sent += await _store(db, streams)
            await until(lambda: relay.outage.ongoing)
            await until(lambda: db.fetchval("SELECT bool_and(instance_id IS NULL) FROM wh_outbox"))
            began, turns, processor = time.monotonic(), loop.turns, time.process_time()
            while time.monotonic() - began < seconds:
                probes = relay.outage.probes
                sent += await _store(db, streams)
                assert await db.fetchval("SELECT max(attempts) FROM wh_outbox") == 0
                await until(lambda: relay.outage.probes > probes)  # noqa: B023 - done before the next round
            report = Report(
                seconds=time.monotonic() - began,
                messages=len(sent),
                probes=relay.outage.probes,
                batches=loop.turns - turns,
                processor_seconds=time.process_time() - processor,
            )
        assert report.probes <= _most_probes(report.seconds, back_off), report
        # One poll in each interval, and one report for what was in hand.
        assert report.batches <= report.seconds / back_off.longest_pause + 3, report
        await until_all_have_left(db)
        rows = await until_there_are(db, len(sent))
        assert streams_of(rows) == {
            stream: [message.message_id for message in sent if message.stream == stream] for stream in streams
        }
        assert not await dead_letters(db)
    return report


async def _store(db: asyncpg.Connection, streams: Sequence[UUID]) -> list[OutboxMessage]:
    messages = [order(stream) for stream in streams]
    await send(db, *messages)
    return messages


def _most_probes(seconds: float, back_off: BackOff) -> int:
    """How often the transport may be asked in such a time, when every pause is as short as chance can make it."""
    probes, passed = 0, 0.0
    while passed <= seconds + 1:
        passed += min(back_off.longest_pause, back_off.first_pause * 2**probes) / 2
        probes += 1
    return probes


@asynccontextmanager
async def _running(loop: WorkLoop) -> AsyncIterator[None]:
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        loop.stop(10)
        await task


async def _prove_on(dsn: str, directory: Path, seconds: float) -> Report:
    async with open_pool(Dsn(dsn), size=8) as pool:
        db = await asyncpg.connect(dsn, server_settings={"search_path": "whippletree"})
        await migrate(db, "whippletree")
        await migrate(db, RECEIVER)
        report = await prove(pool, db, directory, seconds=seconds, back_off=BackOff())
        await db.close()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev prove outage", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for how long the transport is down")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whippletree-outage-") as name:
        directory = Path(name)
        # The server may run under another user, who has to get in.
        directory.chmod(0o755)
        embedded = EmbeddedPostgres(directory / "postgres")
        try:
            with embedded:
                report = asyncio.run(_prove_on(embedded.dsn, directory, chosen.seconds))
        finally:
            embedded.stop(force=True)
    print(report)  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
