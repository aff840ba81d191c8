"""Calls a storing function on the caller's own connection, whatever driver it belongs to, inside its transaction.

A driver is never imported here: whoever hands us its connection has imported it. Nothing here begins, commits or rolls
back. asyncpg gets typed arrays where that is fastest; every other driver gets JSON texts,
which all of them can send.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from whippletree.errors import Error, InvalidMessage, SchemaMismatch, UsageError, WrongVersion
from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.settings import valid_schema
from whippletree.store.new_messages import as_arrays, as_json, as_texts, as_values
from whippletree.store.transaction import Transaction

if TYPE_CHECKING:
    import asyncpg
    import asyncpg.pool
    import psycopg
    import sqlalchemy
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm


class DjangoConnection(Protocol):
    """`django.db.connection`, or one of `django.db.connections`."""

    vendor: Any

    def cursor(self) -> Any: ...


# Unions of names in quotes: the drivers are not imported when the program runs.
AsyncConnection: TypeAlias = Union[
    Transaction,
    "asyncpg.Connection[Any]",
    "asyncpg.pool.PoolConnectionProxy[Any]",
    "psycopg.AsyncConnection[Any]",
    "sqlalchemy.ext.asyncio.AsyncConnection",
    "sqlalchemy.ext.asyncio.AsyncSession",
    "sqlalchemy.ext.asyncio.async_scoped_session[Any]",
]
SyncConnection: TypeAlias = Union[
    "psycopg.Connection[Any]",
    "sqlalchemy.Connection",
    "sqlalchemy.orm.Session",
    "sqlalchemy.orm.scoped_session[Any]",
    DjangoConnection,
]
Arguments: TypeAlias = Sequence[tuple[str, str | None]]

_ASYNC = {
    "asyncpg": ("asyncpg.connection:Connection", "asyncpg.pool:PoolConnectionProxy"),
    "psycopg": ("psycopg:AsyncConnection",),
    "SQLAlchemy": (
        "sqlalchemy.ext.asyncio:AsyncConnection",
        "sqlalchemy.ext.asyncio:AsyncSession",
        "sqlalchemy.ext.asyncio:async_scoped_session",
    ),
}
_SYNC = {
    "psycopg": ("psycopg:Connection",),
    "SQLAlchemy": ("sqlalchemy:Connection", "sqlalchemy.orm:Session", "sqlalchemy.orm:scoped_session"),
    "Django": ("django.db.backends.base.base:BaseDatabaseWrapper", "django.utils.connection:ConnectionProxy"),
}
_SUPPORTED = (
    "asyncpg, psycopg.AsyncConnection, SQLAlchemy's AsyncConnection and AsyncSession with await; "
    "psycopg.Connection, SQLAlchemy's Connection and Session, and django.db.connection through the name that ends in "
    "_sync. Give an open connection or session, not a pool or an engine"
)
# Payloads go as text: a connection may have its own codec for json, which would encode them once more.
_ARRAYS = (
    "$1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[]::json[], $7::text[]::json[], "
    "$8::uuid[], $9::uuid[], $10::timestamptz[]"
)
_SCALARS = "$1::uuid, $2::text, $3::uuid, $4::text, $5::text, $6::text, $7::text, $8::uuid, $9::uuid, $10::timestamptz"
_OF_OUTBOX, _OF_INBOX = f"'outbox', {_SCALARS}", f"'inbox', {_SCALARS}"
_MISSING = frozenset({"3F000", "42883"})
"""Schema or function does not exist."""
_OURS: dict[str, type[Error]] = {"WH004": InvalidMessage, "WH005": WrongVersion}
_SCHEDULED_ALREADY = "wh_scheduled_messages_key"
_WAITING_ALREADY = "wh_messages_message_id"
_STREAM_IS_A_MESSAGE = "wh_messages_pkey"


async def call_storing(
    function: str,
    messages: Sequence[OutboxMessage | InboxMessage],
    on: AsyncConnection,
    schema: str,
    *,
    name: str | None = None,
) -> tuple[Any, ...]:
    """The function's array, one element per message. Awaits the caller's connection only. `name`: see `call_on`."""
    connection, name = asyncpg_connection(on), name or function
    # Most callers store one message: arrays or JSON would cost them as much as the message.
    if len(messages) == 1:
        if connection is None:
            version = await call_on("store_message", _alone(function, messages[0]), on, schema, name=name)
        else:
            scalars = _OF_OUTBOX if function == "store_outbox" else _OF_INBOX
            version = await _call_typed("store_message", scalars, as_values(messages[0]), connection, schema)
        if version is not None:
            return _answer_alone(function, version)
    if connection is None:
        return tuple(await call_on(f"{function}_batch", [("jsonb", as_json(messages))], on, schema, name=name))
    return tuple(await _call_typed(function, _ARRAYS, as_arrays(messages), connection, schema))


async def _call_typed(function: str, parameters: str, values: Sequence[Any], connection: Any, schema: str) -> Any:
    try:
        return await connection.fetchval(_typed(schema, function, parameters), *values)
    except Exception as error:
        _raise_ours(error, schema)
        raise


def call_storing_sync(
    function: str,
    messages: Sequence[OutboxMessage | InboxMessage],
    on: SyncConnection,
    schema: str,
    *,
    name: str | None = None,
) -> tuple[Any, ...]:
    """The same, for connections that are not awaited."""
    name = name or function
    if len(messages) == 1:
        version = call_on_sync("store_message", _alone(function, messages[0]), on, schema, name=name)
        if version is not None:
            return _answer_alone(function, version)
    return tuple(call_on_sync(f"{function}_batch", [("jsonb", as_json(messages))], on, schema, name=name))


async def call_on(
    function: str, arguments: Arguments, on: AsyncConnection, schema: str, *, name: str | None = None
) -> Any:
    """The value of a function of ours, called in the caller's transaction. An argument is a type and its text.

    `name` is what the caller called, for the error that a wrong connection deserves.
    """
    connection: Any = on.connection if isinstance(on, Transaction) else on
    driver = _driver(connection, _ASYNC)
    if driver is None:
        called = name or function
        raise UsageError(_not_supported(connection, _driver(connection, _SYNC), f"call {called}_sync without await"))
    values = [value for _, value in arguments]
    with _translated(schema):
        if driver == "asyncpg":
            return await connection.fetchval(_call(function, schema, arguments, "${}::text"), *values)
        if driver == "psycopg":
            # A plain cursor: the connection's own may make dictionaries of rows, or live on the server.
            async with sys.modules["psycopg"].AsyncCursor(connection, row_factory=_as_tuples()) as cursor:
                await cursor.execute(_call(function, schema, arguments, "%s"), values)
                return (await cursor.fetchone())[0]
        _require_postgresql(connection)
        return (await connection.execute(*_in_sqlalchemy(function, schema, arguments))).scalar_one()


def call_on_sync(
    function: str, arguments: Arguments, on: SyncConnection, schema: str, *, name: str | None = None
) -> Any:
    """The same, for connections that are not awaited."""
    connection: Any = on
    driver = _driver(connection, _SYNC)
    if driver is None:
        raise UsageError(_not_supported(connection, _driver(connection, _ASYNC), f"await {name or function}"))
    statement, values = _call(function, schema, arguments, "%s"), [value for _, value in arguments]
    with _translated(schema):
        if driver == "psycopg":
            with sys.modules["psycopg"].Cursor(connection, row_factory=_as_tuples()) as cursor:
                cursor.execute(statement, values)
                return cursor.fetchone()[0]
        _require_postgresql(connection)
        if driver == "Django":
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                return cursor.fetchone()[0]
        return connection.execute(*_in_sqlalchemy(function, schema, arguments)).scalar_one()


def asyncpg_connection(on: AsyncConnection) -> Any:
    """The connection when it is one of asyncpg, else None."""
    connection = on.connection if isinstance(on, Transaction) else on
    return connection if _driver(connection, _ASYNC) == "asyncpg" else None


def _driver(connection: object, drivers: Mapping[str, tuple[str, ...]]) -> str | None:
    """The driver that the connection belongs to. A driver that is not loaded cannot have made it."""
    python_type: Any = type(connection)
    return _driver_of(python_type, drivers is _ASYNC)


@lru_cache
def _driver_of(python_type: Any, asynchronous: bool) -> str | None:
    for driver, classes in (_ASYNC if asynchronous else _SYNC).items():
        for name in classes:
            module, _, attribute = name.partition(":")
            found = getattr(sys.modules.get(module), attribute, None)
            if found is not None and issubclass(python_type, found):
                return driver
    return None


@lru_cache
def _typed(schema: str, function: str, parameters: str) -> str:
    return f'SELECT "{valid_schema(schema)}".{function}({parameters})'


def _not_supported(connection: object, other: str | None, instead: str) -> str:
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if other is not None:
        return f"{name} is the wrong kind of connection for this call: {instead}"
    return f"cannot store on {name}; supported are {_SUPPORTED}"


def _require_postgresql(connection: Any) -> None:
    """SQLAlchemy and Django speak to other databases too."""
    if hasattr(connection, "vendor"):
        name = connection.vendor
    elif hasattr(connection, "dialect"):
        name = connection.dialect.name
    else:
        name = connection.get_bind().dialect.name
    if name != "postgresql":
        raise UsageError(f"cannot store on a connection to {name}; the messages live in PostgreSQL")


def _call(function: str, schema: str, arguments: Arguments, parameter: str) -> str:
    return _statement(function, schema, tuple(kind for kind, _ in arguments), parameter)


@lru_cache
def _statement(function: str, schema: str, kinds: tuple[str, ...], parameter: str) -> str:
    casts = (f"CAST({parameter.format(number)} AS {kind})" for number, kind in enumerate(kinds, 1))
    return f'SELECT "{valid_schema(schema)}".{function}({", ".join(casts)})'


def _in_sqlalchemy(function: str, schema: str, arguments: Arguments) -> tuple[Any, dict[str, str | None]]:
    statement = sys.modules["sqlalchemy"].text(_call(function, schema, arguments, "CAST(:argument_{} AS text)"))
    return statement, {f"argument_{number}": value for number, (_, value) in enumerate(arguments, 1)}


def _as_tuples() -> Any:
    return sys.modules["psycopg.rows"].tuple_row


def _alone(function: str, message: OutboxMessage | InboxMessage) -> Arguments:
    return [("text", function.removeprefix("store_")), *as_texts(message)]


def _answer_alone(function: str, version: int) -> tuple[Any, ...]:
    return (version,) if function == "store_outbox" else ("stored",)


@contextmanager
def _translated(schema: str) -> Iterator[None]:
    """What our functions refuse becomes our error. Everything else is the driver's own, as its user expects it."""
    try:
        yield
    except Exception as error:
        _raise_ours(error, schema)
        raise


def _raise_ours(error: Exception, schema: str) -> None:
    state, constraint, message = _diagnosis(error)
    if state in _OURS:
        raise _OURS[state](message) from error
    if state == "23505" and constraint == _SCHEDULED_ALREADY:
        raise InvalidMessage("a message is already scheduled under this key; cancel it first") from error
    if state == "23505" and constraint == _WAITING_ALREADY:
        raise InvalidMessage("a message with this id is already waiting; give every message its own") from error
    if state == "23505" and constraint == _STREAM_IS_A_MESSAGE:
        raise InvalidMessage("stream_id is the id of a message that waits; give the stream another") from error
    if state in _MISSING:
        raise SchemaMismatch(
            f"schema {schema!r} is not installed or is older than this version: "
            f"run `whippletree migrate --schema {schema}`"
        ) from error


def _diagnosis(error: BaseException | None) -> tuple[str | None, str | None, str]:
    """SQLSTATE, constraint and message, from the driver's error or the one that SQLAlchemy or Django wrapped."""
    while error is not None:
        diagnosis = getattr(error, "diag", error)
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        message = getattr(diagnosis, "message_primary", None) or getattr(diagnosis, "message", None)
        if state is not None and message is not None:
            return state, getattr(diagnosis, "constraint_name", None), message
        error = getattr(error, "orig", None) or error.__cause__
    return None, None, ""
