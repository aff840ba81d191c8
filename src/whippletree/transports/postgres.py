"""From the outbox of one service straight into the inboxes of others in the same database, without a broker.

Messages are stored there and completed here in one transaction: exactly once, whoever is killed and whenever. When a
lease is lost its completion is refused, and nothing of that stream is stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

import asyncpg

from whippletree.claim.coordinator import HandedIn, WorkCoordinator
from whippletree.dispatch.transport import (
    COMPLETED,
    NOT_SENT,
    PublishOutcome,
    PublishResult,
    StoppedStreams,
    TransportFactory,
    failed,
    unavailable,
)
from whippletree.errors import Error, InvalidMessage, TransportUnavailable
from whippletree.message.envelope import ClaimedMessage, Queue
from whippletree.message.outcome import MessageCompletion, MessageProcessingStatus, Outcome
from whippletree.message.wire import received
from whippletree.settings import valid_schema
from whippletree.store.database import translated
from whippletree.store.deliveries import receive_messages
from whippletree.store.transaction import Connection

Inboxes: TypeAlias = Mapping[str, str | Collection[str]]


class Report(Protocol):
    """How outcomes are handed in within a transaction: `WorkCoordinator.report`."""

    def __call__(self, outcomes: Sequence[Outcome], *, on: Connection) -> Awaitable[HandedIn]: ...


class PostgresTransport:
    """Publishes into other schemas. `inboxes` names, for each topic, the schema or schemas whose services take it.

    A topic that nobody takes is said so: `{"audit": []}`. A topic that is not there at all fails its message.
    """

    @classmethod
    def into(cls, inboxes: Inboxes, *, timeout: float = 10) -> TransportFactory:
        """For `App.transport`: `app.transport(PostgresTransport.into({"orders": "shipping"}))`."""
        checked = _checked(inboxes)

        @asynccontextmanager
        async def transport(
            connections: asyncpg.Pool[asyncpg.Record], coordinator: WorkCoordinator
        ) -> AsyncIterator[PostgresTransport]:
            yield cls(connections, coordinator.report, checked, timeout=timeout)

        return transport

    def __init__(
        self,
        connections: asyncpg.Pool[asyncpg.Record],
        report: Report,
        inboxes: Inboxes,
        *,
        timeout: float = 10,
    ) -> None:
        self._connections = connections
        self._report = report
        self._inboxes = _checked(inboxes)
        # Every relay stores into the schemas in the same order, so that no two wait for each other.
        self._schemas = sorted({schema for schemas in self._inboxes.values() for schema in schemas})
        self._timeout = timeout

    async def publish_batch(self, messages: Sequence[ClaimedMessage]) -> Sequence[PublishOutcome]:
        outcomes: dict[int, PublishOutcome] = {}
        stopped = StoppedStreams()
        for place, message in enumerate(messages):
            if message in stopped:
                outcomes[place] = NOT_SENT
            elif message.topic not in self._inboxes:
                stopped.stop(message)
                outcomes[place] = failed(f"no inbox takes topic {message.topic!r}; name it among the inboxes")
        sendable = [place for place in range(len(messages)) if place not in outcomes]
        if sendable:
            found = await self._publish([messages[place] for place in sendable])
            outcomes.update(zip(sendable, found, strict=True))
        return [outcomes[place] for place in range(len(messages))]

    async def probe(self) -> None:
        try:
            async with self._transaction() as connection:
                for schema in self._schemas:
                    await receive_messages((), on=connection, schema=schema)
        except (Error, TimeoutError) as error:
            raise TransportUnavailable(f"an inbox cannot be reached: {_words(error)}") from error

    async def _publish(self, messages: Sequence[ClaimedMessage]) -> Sequence[PublishOutcome]:
        """All of them, or else stream by stream and message by message, so that only the guilty one pays."""
        try:
            lost = await self._commit(messages)
        except InvalidMessage as error:
            if len(messages) == 1:
                return [failed(str(error))]
            return await self._publish_apart(messages)
        except (Error, TimeoutError) as error:
            return [unavailable(_words(error))] * len(messages)
        if not lost:
            return [COMPLETED] * len(messages)
        held = [message for message in messages if message.stream_id not in lost]
        rest = iter(await self._publish(held) if held else ())
        return [NOT_SENT if message.stream_id in lost else next(rest) for message in messages]

    async def _publish_apart(self, messages: Sequence[ClaimedMessage]) -> Sequence[PublishOutcome]:
        streams: dict[object, list[int]] = {}
        for place, message in enumerate(messages):
            streams.setdefault(message.stream_id, []).append(place)
        outcomes: list[PublishOutcome] = [NOT_SENT] * len(messages)
        for places in streams.values():
            if len(streams) > 1:
                run = await self._publish([messages[place] for place in places])
                for place, outcome in zip(places, run, strict=True):
                    outcomes[place] = outcome
                continue
            for place in places:
                (outcomes[place],) = await self._publish([messages[place]])
                if outcomes[place].result is not PublishResult.COMPLETED:
                    break
        return outcomes

    async def _commit(self, messages: Sequence[ClaimedMessage]) -> set[object]:
        """Store and complete, or change nothing and say which streams are no longer ours."""
        completions = [
            MessageCompletion(message.message_id, MessageProcessingStatus.PUBLISHED, Queue.OUTBOX)
            for message in messages
        ]
        handed_in: HandedIn | None = None
        try:
            async with self._transaction() as connection:
                for schema in self._schemas:
                    taken = [received(message) for message in messages if schema in self._inboxes[message.topic]]
                    if taken:
                        await receive_messages(taken, on=connection, schema=schema)
                handed_in = await self._report(completions, on=connection)
                if handed_in.rejected:
                    raise _Rejected
        except _Rejected:
            assert handed_in is not None
            ids = {rejection.message_id for rejection in handed_in.rejected}
            return {message.stream_id for message in messages if message.message_id in ids}
        assert handed_in is not None
        handed_in.settle()
        return set()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        """A transaction that waits for no lock longer than it may."""
        with translated():
            async with self._connections.acquire(timeout=self._timeout) as connection, connection.transaction():
                milliseconds = int(self._timeout * 1000)
                await connection.execute(
                    "SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)",
                    f"{milliseconds}ms",
                    f"{3 * milliseconds}ms",
                )
                yield connection


class _Rejected(Exception):
    """Rolls back what may not commit."""


def _checked(inboxes: Inboxes) -> dict[str, frozenset[str]]:
    lists = {topic: [schemas] if isinstance(schemas, str) else schemas for topic, schemas in inboxes.items()}
    return {topic: frozenset(map(valid_schema, schemas)) for topic, schemas in lists.items()}


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
