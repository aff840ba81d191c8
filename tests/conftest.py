"""A real PostgreSQL for every test: one server per run, one template database per worker, one clone per test."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from tests.scenario import Given, JsonWorker, RowsWorker, Worker
from whippletree.settings import Dsn
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.schema import migrate

SCHEMA = "whippletree"
_DIRECTORY = "WHIPPLETREE_TEST_DIRECTORY"
_ROOM = 4 * 2**30
_SERVER_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "max_prepared_transactions": "20",
    "shared_buffers": "256MB",
}

Connect = Callable[[], Awaitable[asyncpg.Connection]]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and "WHIPPLETREE_TEST_DSN" not in os.environ:
        directory = Path(tempfile.mkdtemp(prefix="whippletree-test-", dir=_in_memory()))
        # The server may run under another user, who has to get in.
        directory.chmod(0o755)
        os.environ[_DIRECTORY] = str(directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and _DIRECTORY in os.environ:
        directory = Path(os.environ.pop(_DIRECTORY))
        EmbeddedPostgres(directory).stop(force=True)
        shutil.rmtree(directory, ignore_errors=True)


def _in_memory() -> Path | None:
    """Where files need no disk, which would be waited for two thousand times; None where there is no such place."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > _ROOM else None


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The DSN of the run's server; the user may create databases on it."""
    if dsn := os.environ.get("WHIPPLETREE_TEST_DSN"):
        yield dsn
        return
    with EmbeddedPostgres(Path(os.environ[_DIRECTORY]), server_settings=_SERVER_SETTINGS) as embedded:
        yield embedded.dsn


@pytest.fixture(scope="session")
def template(server: str, worker_id: str) -> Iterator[str]:
    """A database with the schema installed, to be cloned."""
    name = f"wh_template_{os.getpid()}_{worker_id}"
    asyncio.run(_create_template(server, name))
    yield name
    asyncio.run(_execute(server, f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture
async def dsn(server: str, template: str, request: pytest.FixtureRequest) -> AsyncIterator[Dsn]:
    """A database of the test's own, with the schema installed."""
    async with blank_database(server, request.node.nodeid, template) as dsn:
        yield dsn


@asynccontextmanager
async def blank_database(
    server: str, purpose: str, template: str = "template1", options: str = ""
) -> AsyncIterator[Dsn]:
    """A database that lasts as long as the context."""
    name = f"wh_test_{os.getpid()}_{abs(hash(purpose)) % 10**12}"
    await _execute(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" {options}')
    try:
        yield Dsn(_on(server, name))
    finally:
        await _execute(server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
async def connect(dsn: Dsn) -> AsyncIterator[Connect]:
    """Opens connections whose search path is the schema; the test's end closes them."""
    opened: list[asyncpg.Connection] = []

    async def open_one() -> asyncpg.Connection:
        connection = await asyncpg.connect(dsn.reveal(), server_settings={"search_path": SCHEMA})
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        await connection.close(timeout=5)


@pytest.fixture
async def db(connect: Connect) -> asyncpg.Connection:
    return await connect()


@pytest.fixture
async def pool(dsn: Dsn) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    async with asyncpg.create_pool(dsn.reveal(), min_size=0, max_size=8) as pool:
        yield pool


@pytest.fixture
def given(db: asyncpg.Connection) -> Given:
    return Given(db)


@pytest.fixture(params=["rows", "json"])
def face(request: pytest.FixtureRequest) -> str:
    """The two faces of the coordinator: typed rows for Python, JSON for everybody."""
    return str(request.param)


@pytest.fixture
def join(pool: asyncpg.Pool[asyncpg.Record], face: str) -> Callable[..., Worker]:
    """Makes a worker: `join("dave")`."""
    kind = RowsWorker if face == "rows" else JsonWorker
    return lambda name, **settings: kind(pool, name, **settings)


@pytest.fixture
def alice(join: Callable[..., Worker]) -> Worker:
    return join("alice")


@pytest.fixture
def bob(join: Callable[..., Worker]) -> Worker:
    return join("bob")


async def _create_template(server: str, name: str) -> None:
    await _execute(server, f'CREATE DATABASE "{name}"')
    connection = await asyncpg.connect(_on(server, name))
    await migrate(connection, SCHEMA)
    await connection.close()


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


def _on(server: str, database: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path=f"/{database}"))
