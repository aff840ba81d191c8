"""Publishes inside the caller's own transaction: events, messages to send, messages to handle here, and for later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.event import NewEvent
from whippletree.store.callers_connection import Arguments, AsyncConnection, SyncConnection, call_on, call_on_sync
from whippletree.store.new_messages import element


@dataclass(slots=True)
class NewMessages:
    """What is to be published together, in the order given. Checked as it is added, before anything is sent."""

    events: list[dict[str, Any]] = field(default_factory=list)
    outbox: list[dict[str, Any]] = field(default_factory=list)
    inbox: list[dict[str, Any]] = field(default_factory=list)
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
        # An event is written like a message, so that one reader in SQL knows both.
        same = OutboxMessage(
            message_id=event.event_id,  # type: ignore[arg-type]  # ids of events and messages share one column here
            message_type=event.event_type,
            payload=event.payload,
            stream=stream,
            headers=event.metadata,
            correlation_id=event.correlation_id,
            causation_id=event.causation_id,
        )
        same.check()
        written = element(same) | {"shape": event.shape}
        if expected_version is not None:
            written["expected_version"] = expected_version
        self.events.append(written)

    def store(self, message: OutboxMessage | InboxMessage, *, due_at: datetime | None = None, key: str | None) -> None:
        """A message, for its queue now, or when it is due."""
        message.check()
        queue = "outbox" if isinstance(message, OutboxMessage) else "inbox"
        if due_at is not None:
            self.scheduled.append(element(message) | {"queue": queue, "due_at": due_at, "schedule_key": key})
        else:
            (self.outbox if queue == "outbox" else self.inbox).append(element(message))


async def publish(new: NewMessages, *, on: AsyncConnection, schema: str = "whippletree") -> Sequence[int]:
    """Publish in the transaction that `on` is in; the versions of the events, then those of the outbox.

    All or nothing, even on a connection that commits by itself. The streams stay locked for other writers until the
    transaction ends, so publish late. Raises `WrongVersion` when a stream is not where it was expected to be.
    """
    return list(await call_on("publish_messages", _arguments(new), on, schema, name="publish")) if new else []


def publish_sync(new: NewMessages, *, on: SyncConnection, schema: str = "whippletree") -> Sequence[int]:
    """`publish` for a connection that is not awaited."""
    return list(call_on_sync("publish_messages", _arguments(new), on, schema, name="publish")) if new else []


async def cancel(key: str, *, on: AsyncConnection, schema: str = "whippletree") -> bool:
    """Take back what was scheduled under a key; False when it is too late, or there was none."""
    return bool(await call_on("cancel_message", [("text", key)], on, schema, name="cancel"))


def cancel_sync(key: str, *, on: SyncConnection, schema: str = "whippletree") -> bool:
    """`cancel` for a connection that is not awaited."""
    return bool(call_on_sync("cancel_message", [("text", key)], on, schema, name="cancel"))


def _arguments(new: NewMessages) -> Arguments:
    parts = (new.events, new.outbox, new.inbox, new.scheduled)
    return [("jsonb", msgspec.json.encode(part).decode() if part else "[]") for part in parts]
