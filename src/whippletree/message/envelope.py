"""What travels: a message with its envelope. One class for what is to be stored, one for what was claimed."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from whippletree.errors import InvalidMessage
from whippletree.message.codec import check_json
from whippletree.message.ids import MessageId, StreamId, new_message_id

_TYPE = re.compile(r"[A-Za-z0-9_.+/:-]{1,200}")


class Queue(StrEnum):
    """Where a message waits."""

    OUTBOX = "outbox"
    INBOX = "inbox"


class OutboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be published. `stream` keeps it in order with its like; without one it stands alone."""

    message_type: str
    payload: str
    topic: str = ""
    stream: UUID | str | None = None
    message_id: MessageId = msgspec.field(default_factory=new_message_id)
    headers: str | None = None
    correlation_id: UUID | None = None
    causation_id: UUID | None = None
    scheduled_for: datetime | None = None

    def check(self) -> None:
        """Raise `InvalidMessage` for whatever the database would refuse."""
        _check_envelope(self)


class InboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A received message, to be handled once. `message_id` is the sender's."""

    message_id: MessageId
    message_type: str
    payload: str
    source_topic: str = ""
    stream: UUID | str | None = None
    headers: str | None = None
    correlation_id: UUID | None = None
    causation_id: UUID | None = None
    scheduled_for: datetime | None = None

    @property
    def topic(self) -> str:
        return self.source_topic

    def check(self) -> None:
        """Raise `InvalidMessage` for whatever the database would refuse."""
        _check_envelope(self)


class ClaimedMessage(msgspec.Struct, frozen=True):
    """A message in hand, under a lease. `version` is its place in its stream: 1, 2, 3 … without a gap."""

    queue: str
    stream_id: StreamId
    version: int
    message_id: MessageId
    message_type: str
    topic: str
    payload: str
    headers: str | None
    correlation_id: UUID | None
    causation_id: UUID | None
    created_at: datetime
    attempts: int
    lease_token: int

    @property
    def ordered(self) -> bool:
        """Whether the message belongs to a stream; one without is a stream of its own."""
        return self.stream_id != self.message_id


def _check_envelope(message: OutboxMessage | InboxMessage) -> None:
    if message.message_id.int == 0:
        raise InvalidMessage("message_id is all zeros; give every message an id of its own")
    if message.stream == "":
        raise InvalidMessage("stream is empty; leave it out for a message without order")
    if isinstance(message.stream, UUID) and message.stream.int == 0:
        raise InvalidMessage("stream is all zeros; leave it out for a message without order")
    if isinstance(message.stream, str) and "\x00" in message.stream:
        raise InvalidMessage("stream contains the character NUL")
    if not _TYPE.fullmatch(message.message_type):
        raise InvalidMessage(
            f"message_type {message.message_type!r} must be 1 to 200 letters, digits, or any of _ . + / : -"
        )
    if message.scheduled_for is not None and message.scheduled_for.tzinfo is None:
        raise InvalidMessage("scheduled_for has no time zone; use datetime.now(timezone.utc) and the like")
    check_json(message.payload)
    if message.headers is not None:
        check_json(message.headers)
