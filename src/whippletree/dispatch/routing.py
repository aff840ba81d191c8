"""Where a message goes: an event to the event store, and to the outbox when it has a topic; a command to the inbox of
whoever handles it, which is our own or lies behind the outbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from whippletree.dispatch.inline import InlinePerspectives
from whippletree.dispatch.receptor import Receptors
from whippletree.errors import InvalidMessage, UnknownName
from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.event import NewEvent
from whippletree.message.ids import EventId, MessageId, StreamId, new_message_id
from whippletree.message.type_names import MessageKind, MessageType, MessageTypes
from whippletree.store.new_messages import stream_id_of
from whippletree.store.publishing import NewMessages
from whippletree.telemetry import trace_headers

_Headers = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a message comes from, and what is asked for it besides."""

    correlation_id: UUID | None = None
    causation_id: UUID | None = None
    expected_version: int | None = None
    due_at: datetime | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Routed:
    """A message that has its id and its way. `place` is that of its version in the answer; None when it has none."""

    message_id: MessageId
    stream_id: StreamId | None
    is_event: bool


class Router:
    """Knows the way of every registered message."""

    def __init__(self, types: MessageTypes, receptors: Receptors) -> None:
        self._types = types
        self._receptors = receptors
        self.inline: Callable[[], InlinePerspectives | None] = lambda: None
        """The perspectives that are folded where events are published."""

    def add(self, message: object, to: NewMessages, origin: Origin) -> Routed:
        """Put a message among those to be published. Raises before anything is sent when it cannot be."""
        known = self._types.of(message)
        stream = known.stream_of(message)
        if known.kind is MessageKind.EVENT:
            assert stream is not None, "an event's type has been refused without a stream"
            message_id = self._event(known, message, stream, to, origin)
        else:
            message_id = self._command(known, message, stream, to, origin)
        stream_id = stream_id_of(stream) if isinstance(stream, str) else stream
        return Routed(message_id, None if stream_id is None else StreamId(stream_id), known.kind is MessageKind.EVENT)

    def _event(
        self, known: MessageType[Any], message: object, stream: UUID | str, to: NewMessages, origin: Origin
    ) -> MessageId:
        if origin.due_at is not None:
            raise InvalidMessage(
                f"{known.name} is an event, and what has not happened yet is none; schedule a command, whose receptor "
                "returns the event"
            )
        message_id, payload, headers = new_message_id(), known.encode(message), trace_headers()
        event = NewEvent(
            event_id=EventId(message_id),
            event_type=known.name,
            shape=known.shape,
            payload=payload,
            metadata=_as_text(headers),
            correlation_id=origin.correlation_id,
            causation_id=origin.causation_id,
        )
        to.append(stream, event, expected_version=origin.expected_version)
        if known.topic is not None:
            to.store(_outgoing(known, message_id, payload, stream, headers, origin), key=None)
        return message_id

    def _command(
        self, known: MessageType[Any], message: object, stream: UUID | str | None, to: NewMessages, origin: Origin
    ) -> MessageId:
        if origin.expected_version is not None:
            raise InvalidMessage(f"{known.name} is a command; expected_version is for events")
        message_id, payload, headers = new_message_id(), known.encode(message), trace_headers()
        if self._receptors.of_type(known.name):
            here = InboxMessage(
                message_id=message_id,
                message_type=known.name,
                payload=payload,
                source_topic=known.topic or "",
                stream=stream,
                headers=_as_text(_with_shape(headers, known)),
                correlation_id=origin.correlation_id,
                causation_id=origin.causation_id,
            )
            to.store(here, due_at=origin.due_at, key=origin.key)
        elif known.topic is not None:
            there = _outgoing(known, message_id, payload, stream, headers, origin)
            to.store(there, due_at=origin.due_at, key=origin.key)
        else:
            raise UnknownName(
                f"nobody handles the command {known.name}; register a receptor for it, or give it the topic of the "
                "service that does: @app.command(topic='…')"
            )
        return message_id


def shape_of(headers: str | None) -> int:
    """The shape that a message's headers name; 1 when they name none."""
    if headers is None or "wh_shape" not in headers:
        return 1
    try:
        return _shape.decode(headers).wh_shape
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidMessage("the header wh_shape is no number") from None


def _outgoing(
    known: MessageType[Any],
    message_id: MessageId,
    payload: str,
    stream: UUID | str | None,
    headers: _Headers,
    origin: Origin,
) -> OutboxMessage:
    return OutboxMessage(
        message_id=message_id,
        message_type=known.name,
        payload=payload,
        topic=known.topic or "",
        stream=stream,
        headers=_as_text(_with_shape(headers, known)),
        correlation_id=origin.correlation_id,
        causation_id=origin.causation_id,
    )


def _with_shape(headers: _Headers, known: MessageType[Any]) -> _Headers:
    return headers if known.shape == 1 else {**headers, "wh_shape": known.shape}


def _as_text(headers: _Headers) -> str | None:
    return msgspec.json.encode(headers).decode() if headers else None


class _ShapeHeader(msgspec.Struct):
    wh_shape: int = 1


_shape = msgspec.json.Decoder(_ShapeHeader)
