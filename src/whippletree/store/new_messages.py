"""New messages as the database takes them: JSON from any client, arrays from asyncpg."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from whippletree.errors import InvalidMessage
from whippletree.message.codec import MAX_PAYLOAD_BYTES
from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.ids import StreamId
from whippletree.message.outcome import Refusal

_TYPES = ("uuid", "text", "uuid", "text", "text", "text", "text", "uuid", "uuid", "timestamptz")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_New = TypeVar("_New", OutboxMessage, InboxMessage)


def require_storable(
    messages: Sequence[OutboxMessage | InboxMessage], max_payload_bytes: int = MAX_PAYLOAD_BYTES
) -> None:
    """Raise `InvalidMessage` for the first message that cannot be stored, with its place, from 1, and its id."""
    for _, fault in _faults(messages, max_payload_bytes):
        raise InvalidMessage(fault)


def storable(messages: Sequence[_New], max_payload_bytes: int) -> tuple[Sequence[_New], list[Refusal]]:
    """The messages that can be stored, and a refusal for each other one."""
    faults = dict(_faults(messages, max_payload_bytes))
    if not faults:
        return messages, []
    ids = [message.message_id if isinstance(message.message_id, UUID) else None for message in messages]
    refused = [Refusal(ids[place - 1], "refused", fault) for place, fault in faults.items()]
    return [message for place, message in enumerate(messages, 1) if place not in faults], refused


def require_distinct(messages: Sequence[OutboxMessage]) -> None:
    """Raise `InvalidMessage` when two messages have one id."""
    if len(messages) < 2 or len({message.message_id for message in messages}) == len(messages):
        return
    message_id, _ = Counter(message.message_id for message in messages).most_common(1)[0]
    places = [place for place, message in enumerate(messages, 1) if message.message_id == message_id]
    raise InvalidMessage(
        f"messages {' and '.join(map(str, places))} have the same id, {message_id}; give every message an id of its own"
    )


def as_json(messages: Sequence[OutboxMessage | InboxMessage]) -> str:
    """A JSON array, each payload as a string so that it is kept to the letter."""
    return msgspec.json.encode([element(message) for message in messages]).decode() if messages else "[]"


def as_arrays(messages: Sequence[OutboxMessage | InboxMessage]) -> list[list[Any]]:
    """One array per column, in the order of the parameters of store_outbox and store_inbox."""
    streams = [message.stream for message in messages]
    return [
        [stream_id_of(stream) if isinstance(stream, str) else stream for stream in streams],
        [stream if isinstance(stream, str) else None for stream in streams],
        [message.message_id for message in messages],
        [message.message_type for message in messages],
        [message.topic for message in messages],
        [message.payload for message in messages],
        [message.headers for message in messages],
        [message.correlation_id for message in messages],
        [message.causation_id for message in messages],
        [message.scheduled_for for message in messages],
    ]


def as_values(message: OutboxMessage | InboxMessage) -> tuple[Any, ...]:
    """The same for one message: plain values."""
    key = message.stream if isinstance(message.stream, str) else None
    return (
        message.stream if key is None else stream_id_of(key),
        key,
        message.message_id,
        message.message_type,
        message.topic,
        message.payload,
        message.headers,
        message.correlation_id,
        message.causation_id,
        message.scheduled_for,
    )


def as_texts(message: OutboxMessage | InboxMessage) -> list[tuple[str, str | None]]:
    """The same as texts, each with its type, which every driver can send."""
    return [
        (kind, None if value is None else str(value)) for kind, value in zip(_TYPES, as_values(message), strict=True)
    ]


def stream_id_of(key: str) -> StreamId:
    """The id of the stream that a text key names, as the SQL function of the same name computes it."""
    if _UUID.fullmatch(key):
        return StreamId(UUID(key))
    return StreamId(UUID(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()))


def _faults(messages: Sequence[OutboxMessage | InboxMessage], max_payload_bytes: int) -> Iterator[tuple[int, str]]:
    for place, message in enumerate(messages, 1):
        try:
            message.check(max_payload_bytes=max_payload_bytes)
        except InvalidMessage as fault:
            yield place, f"message {place} ({message.message_id}) cannot be stored: {fault}"


def element(message: OutboxMessage | InboxMessage) -> dict[str, Any]:
    """One message as JSON."""
    found = {
        "message_id": message.message_id,
        "message_type": message.message_type,
        "payload": str(message.payload),
        "topic": message.topic,
        "headers": None if message.headers is None else msgspec.Raw(message.headers.encode()),
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
        "scheduled_for": message.scheduled_for,
    }
    found["stream_id" if isinstance(message.stream, UUID) else "stream_key"] = message.stream
    return {name: value for name, value in found.items() if value is not None}
