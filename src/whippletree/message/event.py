"""Events: what happened, as it is to be appended and as it was stored."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from whippletree.errors import InvalidMessage
from whippletree.message.codec import check_json
from whippletree.message.envelope import check_type, id_fault
from whippletree.message.ids import EventId, StreamId, new_event_id


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be appended. Its id makes appending it again harmless."""

    event_type: str
    payload: str
    event_id: EventId = msgspec.field(default_factory=new_event_id)
    shape: int = 1
    """Which shape of its type the payload has; upcasters lift older shapes."""
    metadata: str | None = None
    correlation_id: UUID | None = None
    causation_id: UUID | None = None

    def check(self) -> None:
        """Raise `InvalidMessage` for whatever the database would refuse."""
        for name, value in (("correlation_id", self.correlation_id), ("causation_id", self.causation_id)):
            if value is not None and (fault := id_fault(value)):
                raise InvalidMessage(f"{name} {fault}")
        if fault := id_fault(self.event_id):
            raise InvalidMessage(f"event_id {fault}")
        if self.event_id.int == 0:
            raise InvalidMessage("event_id is all zeros; give every event an id of its own")
        if self.shape < 1:
            raise InvalidMessage(f"shape is {self.shape}; shapes are counted from 1")
        check_type("event_type", self.event_type)
        check_json(self.payload)
        if self.metadata is not None:
            check_json(self.metadata, name="metadata")


class StoredEvent(msgspec.Struct, frozen=True):
    """An event of a stream. `version` is its place there: 1, 2, 3 … without a gap."""

    stream_id: StreamId
    version: int
    event_id: EventId
    event_type: str
    shape: int
    payload: str
    metadata: str | None
    correlation_id: UUID | None
    causation_id: UUID | None
    created_at: datetime


class NumberedEvent(msgspec.Struct, frozen=True):
    """An event of the feed. `number` is its place among all events: 1, 2, 3 … without a gap."""

    number: int
    event: StoredEvent


class SortedEvent(NumberedEvent, frozen=True):
    """An event of the feed with the key that a perspective chose for it."""

    key: str
