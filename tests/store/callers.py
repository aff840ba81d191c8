"""One caller per driver, all behind one face, so that every driver runs the same tests."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import asyncpg
import psycopg
import psycopg.rows
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.settings import Dsn
from whippletree.store.inbox import StoreOutcome, store_inbox, store_inbox_sync
from whippletree.store.outbox import store_outbox, store_outbox_sync

ASYNC = (
    "asyncpg",
    "asyncpg_pool",
    "psycopg_async",
    "sqlalchemy_async",
    "sqlalchemy_async_session",
    "sqlalchemy_psycopg",
)
SYNC = ("psycopg", "sqlalchemy", "sqlalchemy_session", "django")
ALL = ASYNC + SYNC


@dataclass
class Caller:
    """A program with a connection of its own, in a transaction unless it was opened without."""

    driver: str
    connection: Any
    _commit: Callable[[], Any]
    _rollback: Callable[[], Any]

    async def store_outbox(self, messages: Sequence[OutboxMessage], **options: Any) -> tuple[int, ...]:
        if self.driver in SYNC:
            return await asyncio.to_thread(store_outbox_sync, messages, on=self.connection, **options)
        return await store_outbox(messages, on=self.connection, **options)

    async def store_inbox(self, messages: Sequence[InboxMessage], **options: Any) -> tuple[StoreOutcome, ...]:
        if self.driver in SYNC:
            return await asyncio.to_thread(store_inbox_sync, messages, on=self.connection, **options)
        return await store_inbox(messages, on=self.connection, **options)

    async def commit(self) -> None:
        await self._do(self._commit)

    async def rollback(self) -> None:
        await self._do(self._rollback)

    async def execute(self, statement: str) -> None:
        """The caller's own work, in the same transaction."""
        if self.driver == "django":
            await self._do(lambda: self.connection.cursor().execute(statement))
        elif self.driver.startswith("sqlalchemy"):
            await self._do(lambda: self.connection.execute(sqlalchemy.text(statement)))
        else:
            await self._do(lambda: self.connection.execute(statement))

    async def _do(self, step: Callable[[], Any]) -> None:
        # Django refuses to work in the thread of an event loop; so synchronous callers get one of their own.
        if self.driver in SYNC:
            await asyncio.to_thread(step)
        else:
            await step()


@asynccontextmanager
async def calling(driver: str, dsn: Dsn, *, autocommit: bool = False) -> AsyncIterator[Caller]:
    async with AsyncExitStack() as stack:
        yield await _OPENERS[driver](stack, dsn.reveal(), autocommit)


async def _asyncpg(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    connection = await asyncpg.connect(dsn)
    stack.push_async_callback(connection.close)
    # A codec of the caller's own, as many programs set; it must not reach into our payloads.
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=repr, decoder=repr, schema="pg_catalog")
    return await _in_asyncpg_transaction("asyncpg", connection, connection, autocommit)


async def _asyncpg_pool(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    pool = await stack.enter_async_context(asyncpg.create_pool(dsn, min_size=0, max_size=1))
    connection = await stack.enter_async_context(pool.acquire())
    return await _in_asyncpg_transaction("asyncpg_pool", connection, connection, autocommit)


async def _in_asyncpg_transaction(driver: str, connection: Any, on: Any, autocommit: bool) -> Caller:
    transaction = connection.transaction()
    if not autocommit:
        await transaction.start()
    return Caller(driver, on, transaction.commit, transaction.rollback)


async def _psycopg_async(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    # Rows as dictionaries, as many programs want them; ours must be read all the same.
    connection = await psycopg.AsyncConnection.connect(
        dsn, autocommit=autocommit, row_factory=cast(Any, psycopg.rows.dict_row)
    )
    stack.push_async_callback(connection.close)
    return Caller("psycopg_async", connection, connection.commit, connection.rollback)


async def _psycopg(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    connection = psycopg.connect(dsn, autocommit=autocommit, row_factory=cast(Any, psycopg.rows.dict_row))
    stack.callback(connection.close)
    return Caller("psycopg", connection, connection.commit, connection.rollback)


async def _sqlalchemy_async(stack: AsyncExitStack, dsn: str, autocommit: bool, driver: str = "asyncpg") -> Caller:
    engine = create_async_engine(_url(dsn, driver), **_isolation(autocommit))
    stack.push_async_callback(engine.dispose)
    connection = await stack.enter_async_context(engine.connect())
    return Caller("sqlalchemy_async", connection, connection.commit, connection.rollback)


async def _sqlalchemy_psycopg(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    return await _sqlalchemy_async(stack, dsn, autocommit, "psycopg")


async def _sqlalchemy_async_session(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    engine = create_async_engine(_url(dsn, "asyncpg"), **_isolation(autocommit))
    stack.push_async_callback(engine.dispose)
    session = await stack.enter_async_context(AsyncSession(engine))
    return Caller("sqlalchemy_async_session", session, session.commit, session.rollback)


async def _sqlalchemy(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    engine = sqlalchemy.create_engine(_url(dsn, "psycopg"), **_isolation(autocommit))
    stack.callback(engine.dispose)
    connection = stack.enter_context(engine.connect())
    return Caller("sqlalchemy", connection, connection.commit, connection.rollback)


async def _sqlalchemy_session(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    engine = sqlalchemy.create_engine(_url(dsn, "psycopg"), **_isolation(autocommit))
    stack.callback(engine.dispose)
    session = stack.enter_context(Session(engine))
    return Caller("sqlalchemy_session", session, session.commit, session.rollback)


async def _django(stack: AsyncExitStack, dsn: str, autocommit: bool) -> Caller:
    # Imported by name: Django has no types.
    settings: Any = importlib.import_module("django.conf").settings
    if not settings.configured:
        settings.configure()
        importlib.import_module("django").setup()
    where = psycopg.conninfo.conninfo_to_dict(dsn)
    database: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": where.get("dbname"),
        "USER": where.get("user", ""),
        "PASSWORD": where.get("password", ""),
        "HOST": where.get("host", ""),
        "PORT": where.get("port", ""),
    }
    connection: Any = importlib.import_module("django.db").ConnectionHandler({"default": database})["default"]
    connection.inc_thread_sharing()
    stack.push_async_callback(asyncio.to_thread, connection.close)
    await asyncio.to_thread(connection.ensure_connection)
    await asyncio.to_thread(connection.set_autocommit, autocommit)
    return Caller("django", connection, connection.commit, connection.rollback)


_OPENERS: dict[str, Callable[[AsyncExitStack, str, bool], Awaitable[Caller]]] = {
    "asyncpg": _asyncpg,
    "asyncpg_pool": _asyncpg_pool,
    "psycopg_async": _psycopg_async,
    "psycopg": _psycopg,
    "sqlalchemy_async": _sqlalchemy_async,
    "sqlalchemy_psycopg": _sqlalchemy_psycopg,
    "sqlalchemy_async_session": _sqlalchemy_async_session,
    "sqlalchemy": _sqlalchemy,
    "sqlalchemy_session": _sqlalchemy_session,
    "django": _django,
}


def _url(dsn: str, driver: str) -> str:
    return dsn.replace("postgresql://", f"postgresql+{driver}://", 1)


def _isolation(autocommit: bool) -> dict[str, Any]:
    return {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
