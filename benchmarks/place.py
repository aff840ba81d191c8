"""Where the benchmarks run: a server with default, durable settings, and a database of its own for each of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.schema import migrate

SCHEMA = "whippletree"
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the benchmarks."""

    server: str
    repeat: int = 3
    quick: bool = False

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The address of a new, empty database with our schema; it is dropped afterwards."""
        name = f"whippletree_benchmark_{os.getpid()}_{next(_numbers)}"
        await _execute(self.server, f"CREATE DATABASE {name}")
        dsn = urlunsplit(urlsplit(self.server)._replace(path=f"/{name}"))
        try:
            async with connected(dsn) as connection:
                await migrate(connection, SCHEMA)
            yield dsn
        finally:
            await _execute(self.server, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def private_server() -> Iterator[str]:
    """A server in a temporary directory, with the settings that everybody starts with."""
    directory = Path(tempfile.mkdtemp(prefix="whippletree-benchmark-"))
    # The server may run under another user, who has to get in.
    directory.chmod(0o755)
    embedded = EmbeddedPostgres(directory)
    try:
        with embedded:
            yield embedded.dsn
    finally:
        embedded.stop(force=True)
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": SCHEMA})
    try:
        yield connection
    finally:
        await connection.close()


async def settle(connection: asyncpg.Connection) -> None:
    """Leave nothing to be done in the background that the last step caused and the next one would pay for."""
    await connection.execute("VACUUM (ANALYZE) wh_messages, wh_active_streams, wh_streams")
    await connection.execute("CHECKPOINT")
    await asyncio.sleep(0.2)


async def _execute(dsn: str, statement: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(statement)
