"""New messages as the database takes them: JSON from any client, arrays from asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from whippletree.message.envelope import InboxMessage, OutboxMessage


def as_json(messages: Sequence[OutboxMessage | InboxMessage]) -> str:
    """A JSON array, each payload as a string so that it is kept to the letter."""
    return msgspec.json.encode([_element(message) for message in messages]).decode() if messages else "[]"


def _element(message: OutboxMessage | InboxMessage) -> dict[str, Any]:
    element = {
        "message_id": message.message_id,
        "message_type": message.message_type,
        "payload": message.payload,
        "topic": message.topic,
        "headers": None if message.headers is None else msgspec.Raw(message.headers.encode()),
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
        "scheduled_for": message.scheduled_for,
    }
    element["stream_id" if isinstance(message.stream, UUID) else "stream_key"] = message.stream
    return {name: value for name, value in element.items() if value is not None}
