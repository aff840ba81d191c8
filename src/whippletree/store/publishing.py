"""Publishes inside the caller's own transaction: events, messages to send, messages to handle here, and for later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.event import NewEvent
from whippletree.message.ids import StreamId
from whippletree.store.callers_connection import (
    Arguments,
    AsyncConnection,
    SyncConnection,
    call_on,
    call_on_sync,
    call_storing,
    call_storing_sync,
)
from whippletree.store.new_messages import as_json, element, stream_id_of


class NewAppend(NamedTuple):
    """An event on its way to a stream."""

    stream: UUID | str
    event: NewEvent
    expected_version: int | None

    @property
    def stream_id(self) -> StreamId:
        return stream_id_of(self.stream) if isinstance(self.stream, str) else StreamId(self.stream)


@dataclass(slots=True)
class NewMessages:
    """What is to be published together, in the order given. Checked as it is added, before anything is sent."""

    events: list[NewAppend] = field(default_factory=list)
    outbox: list[OutboxMessage] = field(default_factory=list)
    inbox: list[InboxMessage] = field(default_factory=list)
    scheduled: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.events or self.outbox or self.inbox or self.scheduled)

    def extend(self, other: NewMessages) -> None:
        """All of another's, after these."""
        self.events += other.events
        self.outbox += other.outbox
        self.inbox += other.inbox
        self.scheduled += other.scheduled

    def append(self, stream: UUID | str, event: NewEvent, *, expected_version: int | None = None) -> None:
        """An event, to be appended to its stream."""
        event.check()
        _as_message(stream, event).check()
        self.events.append(NewAppend(stream, event, expected_version))

    def store(self, message: OutboxMessage | InboxMessage, *, due_at: datetime | None = None, key: str | None) -> None:
        """A message, for its queue now, or when it is due."""
        message.check()
        if due_at is not None:
            queue = "outbox" if isinstance(message, OutboxMessage) else "inbox"
            self.scheduled.append(element(message) | {"queue": queue, "due_at": due_at, "schedule_key": key})
        elif isinstance(message, OutboxMessage):
            self.outbox.append(message)
        else:
            self.inbox.append(message)

    @property
    def is_one_event(self) -> bool:
        """Whether there is one event, and nothing else."""
        return len(self.events) == 1 and not (self.outbox or self.inbox or self.scheduled)

    @property
    def of_one_queue(self) -> bool:
        """Whether there is nothing but messages for the outbox, or for the inbox."""
        return not (self.events or self.scheduled) and bool(self.outbox) != bool(self.inbox)


async def publish(new: NewMessages, *, on: AsyncConnection, schema: str = "whippletree") -> Sequence[int]:
    """Publish in the transaction that `on` is in; the versions of the events, then those of the outbox.

    All or nothing, even on a connection that commits by itself. The streams stay locked for other writers until the
    transaction ends, so publish late. Raises `WrongVersion` when a stream is not where it was expected to be.
    """
    if new.is_one_event:
        version = await call_on("append_event", _event_arguments(new.events[0]), on, schema, name="publish")
        if version is not None:
            return [version]
    if new.of_one_queue and new.inbox:
        await call_storing("store_inbox", new.inbox, on, schema, name="publish")
        return []
    if new.of_one_queue:
        return await call_storing("store_outbox", new.outbox, on, schema, name="publish")
    return list(await call_on("publish_messages", _arguments(new), on, schema, name="publish")) if new else []


def publish_sync(new: NewMessages, *, on: SyncConnection, schema: str = "whippletree") -> Sequence[int]:
    """`publish` for a connection that is not awaited."""
    if new.is_one_event:
        version = call_on_sync("append_event", _event_arguments(new.events[0]), on, schema, name="publish")
        if version is not None:
            return [version]
    if new.of_one_queue and new.inbox:
        call_storing_sync("store_inbox", new.inbox, on, schema, name="publish")
        return []
    if new.of_one_queue:
        return call_storing_sync("store_outbox", new.outbox, on, schema, name="publish")
    return list(call_on_sync("publish_messages", _arguments(new), on, schema, name="publish")) if new else []


async def cancel(key: str, *, on: AsyncConnection, schema: str = "whippletree") -> bool:
    """Take back what was scheduled under a key; False when it is too late, or there was none."""
    return bool(await call_on("cancel_message", [("text", key)], on, schema, name="cancel"))


def cancel_sync(key: str, *, on: SyncConnection, schema: str = "whippletree") -> bool:
    """`cancel` for a connection that is not awaited."""
    return bool(call_on_sync("cancel_message", [("text", key)], on, schema, name="cancel"))


def _arguments(new: NewMessages) -> Arguments:
    events = msgspec.json.encode([_event_element(*append) for append in new.events]).decode()
    scheduled = msgspec.json.encode(new.scheduled).decode()
    return [("jsonb", part) for part in (events, as_json(new.outbox), as_json(new.inbox), scheduled)]


def _as_message(stream: UUID | str, event: NewEvent) -> OutboxMessage:
    """An event is written like a message, so that one reader in SQL knows both."""
    return OutboxMessage(
        message_id=event.event_id,  # type: ignore[arg-type]  # ids of events and messages share one column here
        message_type=event.event_type,
        payload=event.payload,
        stream=stream,
        headers=event.metadata,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
    )


def _event_arguments(append: NewAppend) -> Arguments:
    event = append.event
    return [
        (kind, None if value is None else str(value))
        for kind, value in (
            ("uuid", append.stream_id),
            ("text", append.stream if isinstance(append.stream, str) else None),
            ("uuid", event.event_id),
            ("text", event.event_type),
            ("integer", event.shape),
            ("json", event.payload),
            ("json", event.metadata),
            ("uuid", event.correlation_id),
            ("uuid", event.causation_id),
            ("bigint", append.expected_version),
        )
    ]


def _event_element(stream: UUID | str, event: NewEvent, expected_version: int | None) -> dict[str, Any]:
    written = element(_as_message(stream, event)) | {"shape": event.shape}
    return written if expected_version is None else written | {"expected_version": expected_version}
