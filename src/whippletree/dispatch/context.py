"""What a function is told of the message before it, besides the message itself."""

from __future__ import annotations

from datetime import datetime
from typing import NewType
from uuid import UUID

import msgspec

from whippletree.message.event import StoredEvent
from whippletree.message.ids import StreamId

IdempotencyKey = NewType("IdempotencyKey", str)
"""The same text each time a function is given the same message: hand it to whoever must not act twice."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message comes from. `version` is its place in its stream; `attempts` counts this one."""

    message_id: UUID
    message_type: str
    stream_id: StreamId
    version: int
    attempts: int
    created_at: datetime
    correlation_id: UUID | None = None
    causation_id: UUID | None = None
    headers: str | None = None
    """JSON: the headers of a message, the metadata of an event."""


def context_of(event: StoredEvent, attempts: int) -> Context:
    """That of a stored event, at its attempt of that number."""
    return Context(
        message_id=event.event_id,
        message_type=event.event_type,
        stream_id=event.stream_id,
        version=event.version,
        attempts=attempts,
        created_at=event.created_at,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        headers=event.metadata,
    )


def idempotency_key(name: str, message_id: UUID) -> IdempotencyKey:
    """The key of one function and one message, for ever the same."""
    return IdempotencyKey(f"{name}:{message_id}")
