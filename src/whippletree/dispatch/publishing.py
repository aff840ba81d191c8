"""How a program publishes: in its own transaction or in one of ours, awaited or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from whippletree.dispatch.context import Context
from whippletree.dispatch.inline import InlinePerspectives
from whippletree.dispatch.receipt import Receipt
from whippletree.dispatch.routing import Origin, Routed, Router
from whippletree.errors import InvalidMessage, UsageError
from whippletree.settings import Settings
from whippletree.store import publishing
from whippletree.store.blocking import BlockingPool
from whippletree.store.callers_connection import AsyncConnection, SyncConnection, asyncpg_connection
from whippletree.store.database import translated
from whippletree.store.publishing import NewMessages
from whippletree.store.transaction import Connection
from whippletree.telemetry import Counters

_INLINE = (
    "an inline perspective is folded on the connection that publishes, which has to be one of asyncpg; publish on such "
    "a one or without on=, or make the perspective an ordinary one"
)


class Publishing:
    """Publishes messages of registered types."""

    def __init__(self, router: Router, settings: Callable[[], Settings], blocking: BlockingPool) -> None:
        self.router = router
        self._load_settings = settings
        self._blocking = blocking
        self._connections: asyncpg.Pool[asyncpg.Record] | None = None
        self._counters = Counters()

    @property
    def settings(self) -> Settings:
        """Where the database is. Looked up when it is first needed."""
        return self._load_settings()

    async def publish(
        self,
        message: object,
        *,
        on: AsyncConnection | None = None,
        at: datetime | None = None,
        after: timedelta | float | None = None,
        key: str | None = None,
        cause: Context | None = None,
        correlation_id: UUID | None = None,
        expected_version: int | None = None,
    ) -> Receipt:
        """Publish a message in the transaction that `on` is in; without it, in one of its own.

        A command can be kept until a time (`at`), or for a while (`after`, in seconds); `key` is then the name by which
        `cancel` takes it back. `cause` is the message that this one comes from. An event is refused with `WrongVersion`
        when its stream is not at `expected_version`.
        """
        origin = _origin(at, after, key, cause, correlation_id, expected_version)
        new, routed = self._routed([message], origin)
        return self._receipts(routed, await self._send(new, on))[0]

    async def publish_all(
        self, messages: Iterable[object], *, on: AsyncConnection | None = None, cause: Context | None = None
    ) -> Sequence[Receipt]:
        """Publish several messages in one step, in the order given; all of them or none."""
        new, routed = self._routed(messages, _origin(cause=cause))
        return self._receipts(routed, await self._send(new, on))

    def publish_sync(
        self,
        message: object,
        *,
        on: SyncConnection | None = None,
        at: datetime | None = None,
        after: timedelta | float | None = None,
        key: str | None = None,
        cause: Context | None = None,
        correlation_id: UUID | None = None,
        expected_version: int | None = None,
    ) -> Receipt:
        """`publish` for callers that do not await."""
        origin = _origin(at, after, key, cause, correlation_id, expected_version)
        new, routed = self._routed([message], origin)
        return self._receipts(routed, self._send_sync(new, on))[0]

    def publish_all_sync(
        self, messages: Iterable[object], *, on: SyncConnection | None = None, cause: Context | None = None
    ) -> Sequence[Receipt]:
        """`publish_all` for callers that do not await."""
        new, routed = self._routed(messages, _origin(cause=cause))
        return self._receipts(routed, self._send_sync(new, on))

    async def cancel(self, key: str, *, on: AsyncConnection | None = None) -> bool:
        """Take back a command that was scheduled under a key. False when it is too late, or there was none."""
        if on is not None:
            return await publishing.cancel(key, on=on, schema=self.settings.schema)
        return await self._cancel_alone(key, self._own_connections())

    def cancel_sync(self, key: str, *, on: SyncConnection | None = None) -> bool:
        """`cancel` for callers that do not await."""
        if on is not None:
            return publishing.cancel_sync(key, on=on, schema=self.settings.schema)

        return self._blocking.run(lambda pool: self._cancel_alone(key, pool))

    @contextmanager
    def using(self, connections: asyncpg.Pool[asyncpg.Record], counters: Counters | None = None) -> Iterator[None]:
        """Publish on these connections where `on` is not given, and count there what is published."""
        before = self._connections, self._counters
        self._connections, self._counters = connections, counters or self._counters
        try:
            yield
        finally:
            self._connections, self._counters = before

    @contextmanager
    def instead(self, settings: Settings) -> Iterator[None]:
        """Use the database of these settings while the context is open, as a test does."""
        self._blocking.close()
        before, self._load_settings = self._load_settings, lambda: settings
        try:
            yield
        finally:
            self._blocking.close()
            self._load_settings = before

    def close(self) -> None:
        """Close what calls without await have opened."""
        self._blocking.close()

    def _routed(self, messages: Iterable[object], origin: Origin) -> tuple[NewMessages, list[Routed]]:
        new = NewMessages()
        return new, [self.router.add(message, new, origin) for message in messages]

    def _receipts(self, routed: Sequence[Routed], versions: Sequence[int]) -> Sequence[Receipt]:
        of_events = iter(versions)
        return [
            Receipt(
                message_id=each.message_id,
                stream_id=each.stream_id,
                version=next(of_events) if each.is_event else None,
                schema=self.settings.schema,
                connections=self._own_connections,
            )
            for each in routed
        ]

    async def _send(self, new: NewMessages, on: AsyncConnection | None) -> Sequence[int]:
        if on is None:
            versions = await self._send_alone(new, self._own_connections())
        elif new.events and (inline := self.router.inline()):
            connection = asyncpg_connection(on)
            if connection is None:
                raise UsageError(_INLINE)
            versions = await self._send_inline(new, connection, inline)
        else:
            versions = await publishing.publish(new, on=on, schema=self.settings.schema)
        self._counters.outbox_stored += len(new.outbox)
        return versions

    async def _send_inline(self, new: NewMessages, connection: Connection, inline: InlinePerspectives) -> Sequence[int]:
        # A savepoint inside of a transaction; on a connection that commits by itself, a transaction.
        async with connection.transaction():
            versions = await publishing.publish(new, on=connection, schema=self.settings.schema)
            await inline.after_publishing(new, versions, connection)
        return versions

    def _send_sync(self, new: NewMessages, on: SyncConnection | None) -> Sequence[int]:
        if on is not None:
            if new.events and self.router.inline():
                raise UsageError(_INLINE)
            versions = publishing.publish_sync(new, on=on, schema=self.settings.schema)
        else:
            versions = self._blocking.run(lambda pool: self._send_alone(new, pool))
        self._counters.outbox_stored += len(new.outbox)
        return versions

    async def _send_alone(self, new: NewMessages, pool: asyncpg.Pool[asyncpg.Record]) -> Sequence[int]:
        with translated():
            async with pool.acquire() as connection:
                if new.events and (inline := self.router.inline()):
                    return await self._send_inline(new, connection, inline)
                return await publishing.publish(new, on=connection, schema=self.settings.schema)

    async def _cancel_alone(self, key: str, pool: asyncpg.Pool[asyncpg.Record]) -> bool:
        with translated():
            async with pool.acquire() as connection:
                return await publishing.cancel(key, on=connection, schema=self.settings.schema)

    def _own_connections(self) -> asyncpg.Pool[asyncpg.Record]:
        if self._connections is None:
            raise UsageError(
                "there is no connection to publish on; give yours with on=, or open some with "
                "`async with app.connected()` or `async with app.running()`"
            )
        return self._connections


def _origin(
    at: datetime | None = None,
    after: timedelta | float | None = None,
    key: str | None = None,
    cause: Context | None = None,
    correlation_id: UUID | None = None,
    expected_version: int | None = None,
) -> Origin:
    if at is not None and after is not None:
        raise InvalidMessage("give at= or after=, not both")
    if at is not None and at.utcoffset() is None:
        raise InvalidMessage("at= has no time zone; use datetime.now(timezone.utc) and the like")
    if after is not None:
        at = datetime.now(UTC) + (after if isinstance(after, timedelta) else timedelta(seconds=after))
    if key is not None and at is None:
        raise InvalidMessage("key= names a scheduled message, to cancel it by; give at= or after= too")
    if cause is not None:
        correlation_id = correlation_id or cause.correlation_id or cause.message_id
    return Origin(
        correlation_id=correlation_id,
        causation_id=None if cause is None else cause.message_id,
        expected_version=expected_version,
        due_at=at,
        key=key,
    )
