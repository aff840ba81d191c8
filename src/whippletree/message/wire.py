"""How a message looks outside: one JSON object, the same on every transport.

    {"message_id": …, "message_type": …, "topic": …, "stream_id": …, "version": 7, "correlation_id": …,
     "causation_id": …, "headers": {…}, "payload": …}

`stream_id` is left out for a message without order. `version` is its place in its stream at the sender's, 1, 2, 3 …
without a gap, so that whoever reads can check it. Payload and headers stand there to the letter, as the producer
encoded them. Unknown fields are passed over, so that a later version may add some.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from whippletree.errors import InvalidMessage
from whippletree.message.envelope import ClaimedMessage, InboxMessage
from whippletree.message.ids import MessageId, StreamId

TRACE_CONTEXT = ("traceparent", "tracestate", "baggage")
"""The headers that connect traces. A transport with headers of its own shows them there too."""


class WireMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message on its way."""

    message_id: UUID
    message_type: str
    topic: str
    stream_id: UUID | None = None
    version: int
    correlation_id: UUID | None = None
    causation_id: UUID | None = None
    headers: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw

    @property
    def payload_text(self) -> str:
        return bytes(self.payload).decode()

    @property
    def headers_text(self) -> str | None:
        text = "null" if isinstance(self.headers, msgspec.UnsetType) else bytes(self.headers).decode()
        return None if text == "null" else text

    def received(self) -> InboxMessage:
        """The message as an inbox takes it. Not checked yet: it may be too large, or of an impossible type."""
        return InboxMessage(
            message_id=MessageId(self.message_id),
            message_type=self.message_type,
            payload=self.payload_text,
            source_topic=self.topic,
            stream=None if self.stream_id is None else StreamId(self.stream_id),
            headers=self.headers_text,
            correlation_id=self.correlation_id,
            causation_id=self.causation_id,
        )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(WireMessage)
_trace_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode(message: ClaimedMessage) -> bytes:
    """The message as it travels."""
    return _encoder.encode(
        WireMessage(
            message_id=message.message_id,
            message_type=message.message_type,
            topic=message.topic,
            stream_id=message.stream_id if message.ordered else None,
            version=message.version,
            correlation_id=message.correlation_id,
            causation_id=message.causation_id,
            headers=msgspec.UNSET if message.headers is None else msgspec.Raw(message.headers.encode()),
            payload=msgspec.Raw(message.payload.encode()),
        )
    )


def decode(body: bytes) -> WireMessage:
    """What was encoded. Raises `InvalidMessage`, which says what is wrong with anything else."""
    try:
        message = _decoder.decode(body)
        # Raw parts are not read as text before this.
        body.decode()
        return message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(f"the delivery is not a message: {error}") from None


def received(message: ClaimedMessage) -> InboxMessage:
    """A message that goes from an outbox straight into an inbox of the same database."""
    return InboxMessage(
        message_id=message.message_id,
        message_type=message.message_type,
        payload=message.payload,
        source_topic=message.topic,
        stream=message.stream_id if message.ordered else None,
        headers=message.headers,
        correlation_id=message.correlation_id,
        causation_id=message.causation_id,
    )


def trace_context(headers: str | None) -> dict[str, str]:
    """The trace context among a message's headers; empty when there is none."""
    if headers is None or "traceparent" not in headers:
        return {}
    try:
        values = _trace_decoder.decode(headers)
        context = {name: msgspec.json.decode(values[name], type=str) for name in TRACE_CONTEXT if name in values}
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return {name: value for name, value in context.items() if value.isascii() and value.isprintable()}
