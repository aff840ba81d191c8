"""What travels: a message with its envelope. One class for what is to be stored, one for what was claimed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from uuid import UUID

import msgspec

from whippletree.errors import InvalidMessage
from whippletree.message.codec import MAX_PAYLOAD_BYTES, check_json, text_fault
from whippletree.message.ids import EventId, MessageId, StreamId, new_message_id

_TYPE = re.compile(r"[A-Za-z0-9_.+/:-]+")
_ZEROS = str(UUID(int=0))
_MAX_NAME = 1000


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

    def check(self, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        """Raise `InvalidMessage` for whatever the database would refuse."""
        _check_envelope(self, max_payload_bytes)


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

    def check(self, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        """Raise `InvalidMessage` for whatever the database would refuse."""
        _check_envelope(self, max_payload_bytes)


class ClaimedMessage(msgspec.Struct, frozen=True, gc=False):
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
    created: float
    """When it was stored, in seconds since 1970."""
    attempts: int
    lease_token: int

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created, UTC)

    @property
    def ordered(self) -> bool:
        """Whether the message belongs to a stream; one without is a stream of its own."""
        return self.stream_id != self.message_id


class ReceptorWork(msgspec.Struct, frozen=True):
    """A stored event that a receptor has before it, under a lease."""

    queue: str
    stream_id: StreamId
    version: int
    event_id: EventId
    event_type: str
    payload: str
    metadata: str | None
    correlation_id: UUID | None
    causation_id: UUID | None
    created: float
    """When it was stored, in seconds since 1970."""
    attempts: int
    lease_token: int
    shape: int

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created, UTC)

    @property
    def message_id(self) -> UUID:
        return self.event_id

    @property
    def receptor_name(self) -> str:
        return self.queue.removeprefix("receptor/")


class PerspectiveWork(msgspec.Struct, frozen=True):
    """A stream whose events a perspective has before it, after its checkpoint and up to `version`, under a lease."""

    queue: str
    stream_id: StreamId
    checkpoint: int
    last_processed_event_id: EventId | None
    version: int
    attempts: int
    lease_token: int

    @property
    def message_id(self) -> UUID:
        return self.stream_id

    @property
    def perspective_name(self) -> str:
        """Whose work it is: the perspective's name, for a rebuild NAME@GENERATION."""
        return self.queue.removeprefix("perspective/")

    @property
    def registered_name(self) -> str:
        return self.perspective_name.partition("@")[0]

    @property
    def generation(self) -> int | None:
        """The generation that a rebuild fills; None for work on the live rows."""
        generation = self.queue.partition("@")[2]
        return int(generation) if generation else None


def worked_as(queue: str) -> str:
    """The name under which an instance works a queue: whoever works a perspective works its rebuild."""
    return queue.partition("@")[0]


def check_type(name: str, value: str) -> None:
    """Raise `InvalidMessage` unless the value can be the type of a message or an event."""
    if not isinstance(value, str) or len(value) > 200 or not _is_type(value):
        raise InvalidMessage(f"{name} {value!r:.220} must be 1 to 200 letters, digits, or any of _ . + / : -")


@lru_cache(1024)
def _is_type(value: str) -> bool:
    """A program has few types, and names them again and again."""
    return _TYPE.fullmatch(value) is not None


def _check_envelope(message: OutboxMessage | InboxMessage, max_payload_bytes: int) -> None:
    if fault := id_fault(message.message_id):
        raise InvalidMessage(f"message_id {fault}")
    if message.message_id.int == 0:
        raise InvalidMessage("message_id is all zeros; give every message an id of its own")
    if message.stream is not None:
        check_stream(message.stream)
    check_type("message_type", message.message_type)
    if fault := name_fault(message.topic):
        raise InvalidMessage(f"topic {fault}")
    if message.correlation_id is not None and (fault := id_fault(message.correlation_id)):
        raise InvalidMessage(f"correlation_id {fault}")
    if message.causation_id is not None and (fault := id_fault(message.causation_id)):
        raise InvalidMessage(f"causation_id {fault}")
    if message.scheduled_for is not None and (fault := _time_fault(message.scheduled_for)):
        raise InvalidMessage(f"scheduled_for {fault}")
    check_json(message.payload, max_bytes=max_payload_bytes)
    if message.headers is not None:
        check_json(message.headers, max_bytes=max_payload_bytes, name="headers")


def check_stream(stream: UUID | str) -> None:
    """Raise `InvalidMessage` unless the value can name a stream."""
    if isinstance(stream, UUID):
        if stream.int == 0:
            raise InvalidMessage("stream is all zeros; leave it out for a message without order")
    elif stream == "":
        raise InvalidMessage("stream is empty; leave it out for a message without order")
    elif stream == _ZEROS:
        raise InvalidMessage("stream is all zeros; leave it out for a message without order")
    elif fault := name_fault(stream, "a UUID or a text"):
        raise InvalidMessage(f"stream {fault}")


def id_fault(value: object) -> str | None:
    """Why a value cannot be an id, in words that say what to mend; None when it can."""
    return None if isinstance(value, UUID) else f"is of type {_type_of(value)}; give a uuid.UUID"


def name_fault(text: str, wanted: str = "a text") -> str | None:
    """Why a text cannot be a name, in words that say what to mend; None when it can."""
    if not isinstance(text, str):
        return f"is of type {_type_of(text)}; give {wanted}"
    return f"has more than {_MAX_NAME} characters" if len(text) > _MAX_NAME else text_fault(text)


def _time_fault(time: object) -> str | None:
    if not isinstance(time, datetime):
        return f"is of type {_type_of(time)}; give a datetime"
    if time.utcoffset() is None:
        return "has no time zone; use datetime.now(timezone.utc) and the like"
    try:
        time.astimezone(UTC)
    except OverflowError:
        return "is, in UTC, not within the years 1 to 9999"
    return None


def _type_of(value: object) -> str:
    """With its module: the UUID of uuid_utils is not that of uuid."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
