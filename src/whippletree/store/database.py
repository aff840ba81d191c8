"""Connections to the database that the settings name: another server's, or the embedded one, started on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace

import asyncpg
import asyncpg.pool

from whippletree.errors import (
    CheckpointMoved,
    Error,
    InstanceEvicted,
    InvalidMessage,
    InvalidSetting,
    LeaseLost,
    NotApplied,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    UnknownName,
    WrongVersion,
)
from whippletree.settings import Dsn, Settings
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.pooler import sharing
from whippletree.store.schema import migrate, require_schema
from whippletree.store.transaction import Connection

_APPLICATION_NAME = "whippletree"

_PREPARED = 100
"""How many statements a connection of ours keeps prepared."""

_PARTING = 2.0
"""Seconds for a connection to be given back, before it is closed instead."""

_OURS: dict[str, type[Error]] = {
    "WH001": InstanceEvicted,
    "WH002": InvalidSetting,
    "WH003": InvalidSetting,
    "WH004": InvalidMessage,
    "WH005": WrongVersion,
    "WH006": UnknownName,
    "WH007": NotApplied,
    "WH008": LeaseLost,
    "WH009": CheckpointMoved,
}
"""The conditions that our own SQL functions raise."""

_MISSING = frozenset({"3F000", "42883", "42P01", "42704", "42703"})
"""Schema, function, table, type or column does not exist."""


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[asyncpg.Connection]:
    """One connection, past a pooler when `direct_dsn` leads there. The embedded server runs while it is open."""
    async with serving(replace(settings, dsn=settings.direct_dsn or settings.dsn)) as dsn:
        connection = await open_connection(dsn)
        try:
            yield connection
        finally:
            await connection.close()


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Dsn]:
    """The address of a server that runs while the context is open."""
    if settings.dsn is not None:
        yield settings.dsn
        return
    server = EmbeddedPostgres(settings.data_directory)
    try:
        yield Dsn(await asyncio.to_thread(server.start))
    finally:
        await asyncio.to_thread(server.close)


async def open_connection(dsn: Dsn) -> asyncpg.Connection:
    """A connection, or `StoreUnavailable` with the reason and without the password.

    Its statements are not kept prepared: behind a pooler they would be looked for in another server process.
    """
    application = {"application_name": _APPLICATION_NAME}
    try:
        return await asyncpg.connect(dsn.reveal(), statement_cache_size=0, server_settings=application)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError, ValueError) as error:
        raise StoreUnavailable(
            f"cannot connect to {dsn}: {dsn.redact(str(error) or type(error).__name__)}. "
            "Check --dsn or WHIPPLETREE_DSN; without it the embedded server is used."
        ) from None


@asynccontextmanager
async def open_pool(
    dsn: Dsn,
    *,
    size: int = 4,
    server_settings: Mapping[str, str] | None = None,
    opened: Callable[[asyncpg.Connection], None] = lambda _: None,
) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    """A pool for our own calls. They leave nothing behind in a session, so no connection is reset between two calls.

    Statements are kept prepared, unless a pooler is in between. `opened` is told of every connection.
    """

    async def tell(connection: asyncpg.Connection) -> None:
        opened(connection)

    first = await open_connection(dsn)
    try:
        kept = 0 if await sharing(first) else _PREPARED
    finally:
        await first.close()
    pool = asyncpg.create_pool(
        dsn.reveal(),
        min_size=1,
        max_size=size,
        init=tell,
        reset=_leave_as_it_is,
        statement_cache_size=kept,
        server_settings={"application_name": _APPLICATION_NAME, **(server_settings or {})},
    )
    await pool
    try:
        yield pool
    finally:
        await _close(pool)


@asynccontextmanager
async def prepared_pool(settings: Settings, *, size: int = 4) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    """A pool on a database whose schema is the one of this version."""
    async with serving(settings) as dsn:
        await prepare(dsn, settings)
        async with open_pool(dsn, size=size) as pool:
            yield pool


async def prepare(dsn: Dsn, settings: Settings) -> None:
    """See to it that the schema is the one of this version. In the embedded server it is made so; elsewhere
    `SchemaMismatch` says what to do."""
    connection = await open_connection(settings.direct_dsn or dsn)
    try:
        if settings.dsn is None:
            await migrate(connection, settings.schema)
        else:
            await require_schema(connection, settings.schema)
    finally:
        await connection.close()


@asynccontextmanager
async def lent(
    pool: asyncpg.Pool[asyncpg.Record], *, patience: float | None = None
) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy[asyncpg.Record]]:
    """A connection of a pool. That it dies while it is given back changes nothing of what was done on it, and must not
    look as if it did: the pool has parted with it by then.

    After `patience` seconds it is closed under its borrower. A network that swallows everything says nothing, and who
    waits for an answer would wait for ever.
    """
    connection = await pool.acquire()

    def end() -> None:
        if not is_gone(connection):
            connection.terminate()

    ending = None if patience is None else asyncio.get_running_loop().call_later(patience, end)
    try:
        yield connection
    finally:
        try:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
                await pool.release(connection, timeout=_PARTING)
        finally:
            if ending is not None:
                ending.cancel()


def is_gone(connection: Connection) -> bool:
    """Whether a connection was lost under its borrower. One of a pool does not answer any more once its pool knows."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


async def _close(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    # A pool that is interrupted while it says goodbye closes its connections at once.
    with suppress(TimeoutError):
        async with asyncio.timeout(_PARTING):
            await pool.close()


async def _leave_as_it_is(_: object) -> None:
    """Saves a round trip for every call."""


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the driver become ours. Row contents, which PostgreSQL puts into its details, are left behind."""
    try:
        yield
    except asyncpg.PostgresConnectionError as error:
        raise StoreUnavailable(f"the connection was lost: {type(error).__name__}") from error
    except asyncpg.PostgresError as error:
        raise _translate(error) from None
    # The driver's own confusion, when a connection dies under a call and is given back to its pool.
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        raise StoreUnavailable(f"the connection was lost: {error}") from error


def _translate(error: asyncpg.PostgresError) -> Error:
    state = error.sqlstate or ""
    message = error.message or type(error).__name__
    if state in _OURS:
        hint = f". {error.hint}" if error.hint else ""
        return _OURS[state](f"{message}{hint}")
    if state in _MISSING:
        return SchemaMismatch(f"{message}: run `whippletree migrate`")
    if state.startswith(("57P", "53")):
        return StoreUnavailable(f"PostgreSQL is not available: {message}")
    return StoreError(f"PostgreSQL refused ({state}): {message}")
