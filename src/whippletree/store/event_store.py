"""The events of a stream, with versions: append in the caller's transaction or its own, read in any direction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import asyncpg
import asyncpg.pool

from whippletree.errors import InvalidMessage, UsageError
from whippletree.message.envelope import check_stream
from whippletree.message.event import NewEvent, StoredEvent
from whippletree.message.ids import StreamId
from whippletree.message.upcast import Upcasters
from whippletree.store.database import translated
from whippletree.store.new_messages import stream_id_of
from whippletree.store.receipt import Receipt
from whippletree.store.statements import call
from whippletree.store.transaction import Connection

Executor: TypeAlias = (
    "asyncpg.Connection | asyncpg.pool.PoolConnectionProxy[asyncpg.Record] | asyncpg.Pool[asyncpg.Record]"
)


Inline: TypeAlias = Callable[[StreamId, int, Connection], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which events of a stream to read. Without bounds, all of them."""

    after: int = 0
    up_to: int | None = None
    until: datetime | None = None
    types: Sequence[str] | None = None
    backwards: bool = False
    limit: int | None = None


class EventStore:
    """Appends and reads events. Everything is idempotent by event id."""

    def __init__(
        self,
        connections: asyncpg.Pool[asyncpg.Record],
        *,
        schema: str = "whippletree",
        upcasters: Upcasters | None = None,
        inline: Inline | None = None,
    ) -> None:
        """`inline` is called after each append, in its transaction, with the stream and its last version."""
        self._connections = connections
        self._schema = schema
        self._inline = inline
        self._upcasters = upcasters or Upcasters()
        self._append = call(schema, "append_events", 11)
        self._read = call(schema, "read_events", 7)

    async def append(
        self,
        stream: UUID | str,
        events: Sequence[NewEvent],
        *,
        expected_version: int | None = None,
        on: Executor | None = None,
    ) -> Receipt:
        """Append events to a stream; the receipt tells their versions, and waits for perspectives.

        Atomic: in the caller's transaction when `on` is its connection, else in one of its own. Raises `WrongVersion`,
        which names both versions, when the stream is not at `expected_version`.
        """
        if not events:
            raise UsageError("there is nothing to append")
        for place, event in enumerate(events, 1):
            try:
                event.check()
            except InvalidMessage as error:
                raise InvalidMessage(f"event {place} ({event.event_id}): {error}") from None
        if self._inline and (on is None or isinstance(on, asyncpg.Pool)):
            with translated():
                async with self._connections.acquire() as connection, connection.transaction():
                    return await self._append_on(connection, stream, events, expected_version)
        return await self._append_on(on or self._connections, stream, events, expected_version)

    async def _append_on(
        self, executor: Executor, stream: UUID | str, events: Sequence[NewEvent], expected_version: int | None
    ) -> Receipt:
        count = len(events)
        with translated():
            stream_id = _identify(stream)
            versions = await executor.fetchval(
                self._append,
                [stream_id] * count,
                [stream if isinstance(stream, str) else None] * count,
                [event.event_id for event in events],
                [event.event_type for event in events],
                [event.shape for event in events],
                [event.payload for event in events],
                [event.metadata for event in events],
                [event.correlation_id for event in events],
                [event.causation_id for event in events],
                [] if expected_version is None else [stream_id],
                [] if expected_version is None else [expected_version],
            )
            if self._inline and not isinstance(executor, asyncpg.Pool):
                await self._inline(stream_id, versions[-1], executor)
        return Receipt(
            stream_id,
            [event.event_id for event in events],
            versions,
            connections=self._connections,
            schema=self._schema,
        )

    async def read(
        self, stream: UUID | str, span: Span | None = None, *, on: Executor | None = None
    ) -> list[StoredEvent]:
        """The events of a stream, in their present shape."""
        executor = on or self._connections
        span = span or Span()
        with translated():
            rows = await executor.fetch(
                self._read,
                _identify(stream),
                span.after,
                span.up_to,
                span.until,
                None if span.types is None else list(span.types),
                span.backwards,
                span.limit,
            )
        return [self._upcasters.lift(StoredEvent(*row)) for row in rows]


def _identify(stream: UUID | str) -> StreamId:
    if isinstance(stream, UUID):
        return StreamId(stream)
    if not stream:
        raise InvalidMessage("the stream's key is empty")
    check_stream(stream)
    return stream_id_of(stream)
