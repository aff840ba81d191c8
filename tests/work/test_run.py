"""Real processes: signals, kill -9, a blocked event loop, a database that goes away and comes back."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import socket
import tempfile
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import asyncpg
import pytest

from tests.conftest import SCHEMA
from tests.waiting import until
from tests.work import program
from tests.work.shop import Placed, Reserve, drained, new_app, running, settings
from whippletree.claim.coordinator import CoordinatorSettings
from whippletree.settings import Dsn
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.overview import overview
from whippletree.store.schema import migrate

PROGRAM = """
import asyncio, os
import whippletree as wt
from tests.work.shop import Placed, Reserve, Reserved, new_app
from whippletree.settings import Dsn

app = new_app(Dsn(os.environ["WHIPPLETREE_DSN"]))

@app.receptor(retry=wt.Retry(attempts=1000, first_pause=0.01))
async def reserve(command: Reserve, tx: wt.Transaction) -> Reserved:
    await tx.execute("INSERT INTO public.effects (stream, number) VALUES ($1, $2)", command.order, command.number)
    return Reserved(command.order, command.number)

@app.receptor
async def wait(event: Placed) -> None:
    print("handling", flush=True)
    await asyncio.Event().wait()
"""
FOLLOWER = """
import os
from tests.work.shop import Placed, new_app
from whippletree.settings import Dsn

app = new_app(Dsn(os.environ["WHIPPLETREE_DSN"]))

@app.subscriber("diary")
async def diary(event: Placed) -> None:
    pass
"""
EFFECTS = "CREATE TABLE public.effects (id serial, stream text, number integer)"


def process(directory: Path, dsn: str, *options: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return program.process(directory, Dsn(dsn), PROGRAM, *options, heard=True)


async def _logged(directory: Path, words: str) -> None:
    await until(lambda: words in (directory / "log").read_text(encoding="utf-8"))


async def _joined(db: asyncpg.Connection, count: int) -> None:
    await until(lambda: db.fetchval("SELECT count(*) >= $1 FROM wh_service_instances", count))


async def test_sigterm_finishes_gives_back_and_deregisters(tmp_path: Path, dsn: Dsn, db: asyncpg.Connection) -> None:
    await db.execute(EFFECTS)
    async with process(tmp_path, dsn.reveal(), "--grace", "0.5") as instance:
        await _joined(db, 1)
        app = new_app(dsn)
        async with app.connected():
            await app.publish(Placed("hangs"))
        assert instance.stdout is not None
        assert await instance.stdout.readline() == b"handling\n"
        instance.send_signal(signal.SIGTERM)
        assert await instance.wait() == 0
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams WHERE instance_id IS NULL AND attempts = 0") == 1


async def test_the_log_can_be_json_and_metrics_can_be_scraped(tmp_path: Path, dsn: Dsn, db: asyncpg.Connection) -> None:
    await db.execute(EFFECTS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with process(tmp_path, dsn.reveal(), "--log-format", "json", "--prometheus", str(port)) as instance:
        await _joined(db, 1)
        address = f"http://127.0.0.1:{port}/metrics"
        with await asyncio.to_thread(urllib.request.urlopen, address, timeout=30) as answer:
            assert b'whippletree_active_leases{service="shop"}' in answer.read()
        instance.send_signal(signal.SIGTERM)
        assert await instance.wait() == 0
    written = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    started = next(line for line in written if line["message"].startswith("shop runs as instance"))
    assert started["instance_id"] in started["message"]
    assert started["logger"] == "whippletree.service"


async def test_an_instance_that_only_follows_is_listed_and_missed_when_it_is_gone(
    tmp_path: Path, dsn: Dsn, db: asyncpg.Connection
) -> None:
    app = new_app(dsn)
    async with program.process(tmp_path, dsn, FOLLOWER, "--work", "subscribers") as instance, app.connected():
        await app.publish(Placed("order-1"))
        await until(lambda: db.fetchval("SELECT max(checkpoint) = 1 FROM wh_subscribers WHERE state = 'live'"))
        await _joined(db, 1)
        stands, by = await db.fetchval("SELECT array_agg(told) FROM why_subscriber('diary') AS told")
        assert stands == "subscriber diary is at number 1 of the feed, 0 behind: live"
        assert f":{instance.pid}, which last beat" in by
        assert "is gone" not in by

        instance.kill()
        await instance.wait()
        await until(lambda: db.fetchval("SELECT max(state) = 'lost' FROM wh_subscriptions"))
        await app.publish(Placed("order-2"))
        told = [alert.problem for alert in (await overview(db, SCHEMA)).alerts]
        assert "nobody follows subscriber diary, 1 event behind" in told


async def test_a_second_signal_ends_at_once(tmp_path: Path, dsn: Dsn, db: asyncpg.Connection) -> None:
    await db.execute(EFFECTS)
    async with process(tmp_path, dsn.reveal(), "--grace", "600") as instance:
        await _joined(db, 1)
        app = new_app(dsn)
        async with app.connected():
            await app.publish(Placed("hangs"))
        assert instance.stdout is not None
        await instance.stdout.readline()
        instance.send_signal(signal.SIGTERM)
        await _logged(tmp_path, "a second signal ends at once")
        instance.send_signal(signal.SIGINT)
        assert await instance.wait() == 128 + signal.SIGINT


async def test_killed_at_any_time_every_effect_happens_once_and_in_order(
    tmp_path: Path, dsn: Dsn, db: asyncpg.Connection
) -> None:
    await db.execute(EFFECTS)
    app = new_app(dsn)
    app.receptor(_nobody)
    chance = random.Random(6)
    published = 0
    async with app.connected():
        for _ in range(4):
            async with process(tmp_path, dsn.reveal()) as one, process(tmp_path, dsn.reveal()) as two:
                await app.publish_all([Reserve(f"order-{n % 13}", n) for n in range(published, published + 600)])
                published += 600
                some = published - 600 + chance.randrange(50, 500)
                await until(lambda some=some: db.fetchval("SELECT count(*) >= $1 FROM public.effects", some))  # type: ignore[misc]
                one.kill()
                two.kill()
        async with process(tmp_path, dsn.reveal()):
            await drained(db)

    streams = defaultdict(list)
    for row in await db.fetch("SELECT stream, number FROM public.effects ORDER BY id"):
        streams[row["stream"]].append(row["number"])
    assert streams == {f"order-{k}": list(range(k, published, 13)) for k in range(13)}
    returned = await db.fetch("SELECT payload ->> 'number' AS n FROM wh_event_store")
    assert sorted(int(row["n"]) for row in returned) == list(range(published))


async def test_a_receptor_that_blocks_the_event_loop_costs_no_lease(dsn: Dsn, db: asyncpg.Connection) -> None:
    app = new_app(dsn)
    handled: list[str] = []
    others = asyncio.Event()

    @app.receptor
    async def reserve(command: Reserve) -> None:
        handled.append(command.order)
        if command.order == "blocks":
            # Nothing runs on this event loop for three times the life of a lease.
            threading.Event().wait(3)
            others.set()
        await others.wait()

    short = settings(concurrency=10)
    async with running(app, short, coordinator=CoordinatorSettings(lease_seconds=1)) as service:
        await app.publish_all([Reserve(f"order-{n}") for n in range(5)])
        await until(lambda: len(handled) == 5)
        await app.publish(Reserve("blocks"))
        await drained(db)
        assert service.counters.leases_kept_alive > 0
    assert sorted(handled) == ["blocks", *(f"order-{n}" for n in range(5))], "nothing was handed out twice"


@pytest.fixture
def private_server() -> Iterator[EmbeddedPostgres]:
    """A server that a test may stop."""
    directory = Path(tempfile.mkdtemp(prefix="whippletree-restart-"))
    directory.chmod(0o755)
    server = EmbeddedPostgres(directory)
    try:
        with server:
            yield server
    finally:
        server.stop(force=True)
        shutil.rmtree(directory, ignore_errors=True)


async def test_a_restart_of_the_database_costs_neither_messages_nor_duplicates(
    private_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    address = private_server.dsn
    connection = await asyncpg.connect(address)
    await migrate(connection, "whippletree")
    await connection.execute(EFFECTS)
    app = new_app(Dsn(address))
    app.receptor(_nobody)
    async with app.connected():
        await app.publish_all([Reserve(f"order-{n % 13}", n) for n in range(3000)])
    async with process(tmp_path, address) as instance:
        await until(lambda: connection.fetchval("SELECT count(*) > 500 FROM public.effects"))
        await connection.close()
        await asyncio.to_thread(private_server.stop, force=True)
        # The instance has noticed, and tries again by itself.
        await _logged(tmp_path, "trying again")
        await asyncio.to_thread(private_server.start)
        connection = await asyncpg.connect(address, server_settings={"search_path": "whippletree"})
        await drained(connection)
        assert instance.returncode is None
    streams = defaultdict(list)
    for row in await connection.fetch("SELECT stream, number FROM public.effects ORDER BY id"):
        streams[row["stream"]].append(row["number"])
    await connection.close()
    assert streams == {f"order-{k}": list(range(k, 3000, 13)) for k in range(13)}


async def _nobody(command: Reserve) -> None:
    """Makes the command one that is handled here; the other process does it."""
