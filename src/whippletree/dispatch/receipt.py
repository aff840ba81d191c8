"""What a publisher gets back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from whippletree.errors import UsageError
from whippletree.message.ids import EventId, MessageId, StreamId
from whippletree.store import receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A message that is published once the transaction commits."""

    message_id: MessageId
    stream_id: StreamId | None
    """None for a message that stands alone."""
    version: int | None
    """The place of an event in its stream. None for a command, whose place is known when it has arrived."""
    schema: str = field(repr=False)
    connections: Callable[[], asyncpg.Pool[asyncpg.Record]] = field(repr=False, compare=False)

    async def applied(self, perspective: str | Callable[..., Any], *, timeout: float = 5) -> None:  # noqa: ASYNC109
        """Return when this event is in the perspective's rows, on whichever instance it runs. Commit first.

        Raises `NotApplied` when the time is up, which says what keeps it. Looks on connections of the app's own.
        """
        if self.stream_id is None or self.version is None:
            raise UsageError("a command is applied by no perspective; wait for the event that it leads to")
        stored = receipt.Receipt(
            self.stream_id,
            [EventId(self.message_id)],
            [self.version],
            connections=self.connections(),
            schema=self.schema,
        )
        await stored.applied(perspective, timeout=timeout)
