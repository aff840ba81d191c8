"""What a publisher gets back."""

from __future__ import annotations

from dataclasses import dataclass

from whippletree.message.ids import MessageId, StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A message that is published once the transaction commits."""

    message_id: MessageId
    stream_id: StreamId | None
    """None for a message that stands alone."""
    version: int | None
    """The place of an event in its stream. None for a command, whose place is known when it has arrived."""
