"""Processes that are stopped in the middle of a transaction, as a frozen machine or a lost network would leave them."""

from __future__ import annotations

import signal
from pathlib import Path

import asyncpg
import pytest

from tests.scenario import T0
from tests.waiting import until
from tests.work.program import process
from tests.work.shop import Placed, Reserve, drained, new_app
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance, new_session_name
from whippletree.settings import Dsn

PROGRAM = """
import asyncio, os, signal
import whippletree as wt
from tests.work.shop import Placed, Reserve, Reserved, new_app
from whippletree.settings import Dsn

app = new_app(Dsn(os.environ["WHIPPLETREE_DSN"]))

async def count(tx):
    await tx.execute("UPDATE public.stock SET reserved = reserved + 1")
    if os.environ.get("STOPS") and not os.path.exists("stopped"):
        open("stopped", "w").close()
        os.kill(os.getpid(), signal.SIGSTOP)

@app.receptor
async def reserve(command: Reserve, tx: wt.Transaction) -> Reserved:
    await count(tx)
    return Reserved(command.order, command.number)

@app.perspective(tables=["public.stock"])
async def stock(event: Placed, tx: wt.Transaction) -> None:
    await count(tx)
"""
QUICKLY = ("--lease", "2")


@pytest.mark.parametrize("message", [Reserve("order-1"), Placed("order-1")], ids=["receptor", "perspective"])
async def test_what_a_stopped_process_had_locked_is_freed_and_its_work_done_once(
    tmp_path: Path, dsn: Dsn, db: asyncpg.Connection, message: Reserve | Placed
) -> None:
    """The row of the stock is locked by a transaction whose process does not move. Woken up, it commits nothing."""
    await db.execute("CREATE TABLE public.stock AS SELECT 0 AS reserved")
    app = new_app(dsn)

    @app.receptor
    async def reserve(command: Reserve) -> None:
        """Makes the command one that is handled here; the processes do it."""

    async with app.connected(), process(tmp_path, dsn, PROGRAM, *QUICKLY, STOPS="1") as stopped:
        await app.publish(message)
        await until((tmp_path / "stopped").exists)
        async with process(tmp_path, dsn, PROGRAM, *QUICKLY):
            await drained(db)
            assert await db.fetchval("SELECT reserved FROM public.stock") == 1
            stopped.send_signal(signal.SIGCONT)
            await until(lambda: b"lost" in (tmp_path / "log").read_bytes())
        await app.publish(message)
        await drained(db)
        assert stopped.returncode is None
    assert await db.fetchval("SELECT reserved FROM public.stock") == 2


async def test_only_transactions_of_silent_instances_are_ended(dsn: Dsn, db: asyncpg.Connection) -> None:
    """A receptor may take its time in its transaction while its instance beats; others' transactions are their own."""
    name, elsewhere = new_session_name("shop", "whippletree"), new_session_name("shop", "another")
    instance = ServiceInstance(service_name="shop", metadata={"session": name})
    sessions = {
        each: await asyncpg.connect(dsn.reveal(), server_settings={"application_name": each})
        for each in (name, elsewhere, "whippletree", "a program")
    }
    for session in sessions.values():
        await session.execute("BEGIN; SELECT 1")
    pids = [session.get_server_pid() for session in sessions.values()]
    await until(lambda: _idle(db, pids))
    async with asyncpg.create_pool(dsn.reveal(), min_size=1, max_size=1) as pool:
        await WorkCoordinator(pool, instance).process_work_batch(WorkReport(), as_of=T0)
    # All of them have been idle for longer than the shortest time.
    assert await db.fetchval("SELECT end_silent_transactions(1e-6)") == 0
    await db.execute("UPDATE wh_service_instances SET last_heartbeat_at = clock_timestamp() - interval '1 minute'")
    assert await db.fetchval("SELECT end_silent_transactions(60)") == 0
    assert await db.fetchval("SELECT end_silent_transactions(1e-6)") == 1
    ended = sessions.pop(name)
    await until(ended.is_closed)
    for session in sessions.values():
        assert await session.fetchval("SELECT 1") == 1
        await session.close()


async def _idle(db: asyncpg.Connection, pids: list[int]) -> bool:
    count = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1) AND state = 'idle in transaction'"
    return bool(await db.fetchval(count, pids) == len(pids))
