"""A poll that finds nothing writes nothing, so that idle instances cost the server next to nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.conftest import SCHEMA
from tests.scenario import T0, JsonWorker, RowsWorker, Worker, seconds
from whippletree.message.ids import new_instance_id
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.schema import migrate

# Whatever the server writes of its own accord is off: only our polls can move the log.
_QUIET = {
    "autovacuum": "off",
    "checkpoint_timeout": "1d",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "fsync": "off",
}


@pytest.fixture
def quiet_server() -> Iterator[str]:
    """A server on which nobody else does anything."""
    directory = Path(tempfile.mkdtemp(prefix="whippletree-quiet-"))
    directory.chmod(0o755)
    embedded = EmbeddedPostgres(directory, server_settings=_QUIET)
    try:
        with embedded:
            yield embedded.dsn
    finally:
        embedded.stop(force=True)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
async def quiet_pool(quiet_server: str) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    connection = await asyncpg.connect(quiet_server)
    await migrate(connection, SCHEMA)
    await connection.close()
    async with asyncpg.create_pool(quiet_server, min_size=2, max_size=2) as pool:
        yield pool


async def test_an_idle_poll_writes_no_wal(quiet_pool: asyncpg.Pool[asyncpg.Record]) -> None:
    for kind in (RowsWorker, JsonWorker):
        worker: Worker = kind(quiet_pool, kind.__name__)
        # Joining writes; so does settling the partitions, once the other one has come.
        for _ in range(3):
            await worker.claims(as_of=T0)
        before = await quiet_pool.fetchval("SELECT pg_current_wal_insert_lsn()::text")
        for _ in range(50):
            assert await worker.claims(as_of=T0 + seconds(0.9)) == []
        assert await quiet_pool.fetchval("SELECT pg_current_wal_insert_lsn() - $1::text::pg_lsn", before) == 0


async def test_an_idle_poll_needs_no_transaction_id(db: asyncpg.Connection) -> None:
    instance_id = new_instance_id()
    poll = "SELECT * FROM process_work_batch($1, 'idle', 'test', 1, p_as_of => $2)"
    await db.execute(poll, instance_id, T0)
    async with db.transaction():
        await db.execute(poll, instance_id, T0 + seconds(0.5))
        assert await db.fetchval("SELECT pg_current_xact_id_if_assigned()") is None
