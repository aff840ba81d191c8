"""A standby takes over that does not have the last events, and gives their numbers to others."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import asyncpg
import pytest

from tests.conftest import SCHEMA
from tests.waiting import until
from tests.work.following import Diary, append, effects, make_effects, running
from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode
from whippletree.settings import Dsn
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.feed import Chosen
from whippletree.store.schema import migrate
from whippletree.work.subscriber_row import SubscriptionState

_ALL = Chosen(patterns=[".*"])
_KEPT = ["One", "Two", "Three", "Four", "Five", "Six"]
_LAZY = CheckpointEvery(count=100, seconds=3600)


class Servers:
    """A server, and one that can take over from it, with what the first had when it was copied."""

    def __init__(self, directory: Path) -> None:
        self._first, self._second = (EmbeddedPostgres(directory / name) for name in ("first", "second"))
        sockets = [parse_qs(urlsplit(server.dsn).query)["host"][0] for server in (self._first, self._second)]
        self.dsn = Dsn(urlsplit(self._first.dsn)._replace(query=urlencode({"host": ",".join(sockets)})).geturl())
        """Leads to whichever of them runs."""

    async def start(self) -> None:
        await asyncio.to_thread(self._first.start)

    async def copy(self) -> None:
        """The second has from now on what the first has; the first goes on."""
        await asyncio.to_thread(self._first.stop, force=True)
        self._second.directory.mkdir(mode=0o755)
        data = [str(server.directory / "data") for server in (self._first, self._second)]
        await asyncio.to_thread(subprocess.run, ["cp", "-a", *data], check=True)
        await self.start()

    async def fail_over(self) -> None:
        await asyncio.to_thread(self._first.stop, force=True)
        await asyncio.to_thread(self._second.start)

    def stop(self) -> None:
        for server in (self._first, self._second):
            server.stop(force=True)


@pytest.fixture
def servers() -> Iterator[Servers]:
    directory = Path(tempfile.mkdtemp(prefix="whippletree-failover-"))
    directory.chmod(0o755)
    servers = Servers(directory)
    yield servers
    servers.stop()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize(
    "diary",
    [
        pytest.param(Diary(mode=InstanceMode.SINGLE_INSTANCE, chosen=_ALL), id="alone"),
        pytest.param(Diary(mode=InstanceMode.COORDINATED, chosen=_ALL), id="coordinated"),
        pytest.param(Diary(mode=InstanceMode.SINGLE_INSTANCE, chosen=Chosen(types=_KEPT)), id="passing others over"),
        pytest.param(
            Diary(mode=InstanceMode.SINGLE_INSTANCE, transactional=False, checkpoint=_LAZY), id="without transactions"
        ),
    ],
)
async def test_a_subscriber_skips_nothing_of_a_server_that_took_over_without_the_last_events(
    servers: Servers, diary: Diary
) -> None:
    """Their numbers are given to other events, which it believes to have passed already."""
    await servers.start()
    async with _connection(servers.dsn) as db:
        await migrate(db, SCHEMA)
        await make_effects(db)
    async with running(servers.dsn, diary) as alice, asyncpg.create_pool(servers.dsn.reveal(), min_size=0) as pool:
        subscription = alice.worker.subscriptions["diary"]
        await append(pool, "One", "Two", "Three")
        await until(lambda: subscription.lag(3) == 0)
        await servers.copy()
        await until(lambda: subscription.state is SubscriptionState.LIVE)
        await append(pool, *["Lost"] * 20)
        await until(lambda: subscription.lag(23) == 0)
        await servers.fail_over()
        await append(pool, "Four")
        await until(lambda: diary.seen[-1] == "Four")
        await append(pool, "Five", "Six")
        await until(lambda: diary.seen[-1] == "Six")
    async with _connection(servers.dsn) as db:
        told = await effects(db) if diary.transactional else [name for name in diary.seen if name != "Lost"][-6:]
    assert told == _KEPT


@asynccontextmanager
async def _connection(dsn: Dsn) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn.reveal(), server_settings={"search_path": SCHEMA})
    yield connection
    await connection.close()
