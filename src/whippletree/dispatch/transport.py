"""What a transport is: the bus outside. It publishes batches, with an outcome for each message, and it delivers.

Order is kept per stream. A transport sends a message only after the one before it in its stream was confirmed, or both
in one batch that is taken as a whole; a stream stops at its first message that was not taken. So a second relay of the
same stream, one that has lost its lease and does not know it yet, repeats messages but never overtakes one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import asyncpg
import msgspec

from whippletree.claim.coordinator import WorkCoordinator
from whippletree.message.envelope import ClaimedMessage


class PublishResult(StrEnum):
    """What became of a message that was to be published."""

    PUBLISHED = "published"
    """The transport has confirmed that it holds the message, whatever happens to us now."""
    COMPLETED = "completed"
    """Published, and completed in the same transaction: nothing is left to report."""
    FAILED = "failed"
    """The transport does not take this message; its stream stops here."""
    UNAVAILABLE = "unavailable"
    """The transport did not confirm. The message is not to blame: it costs no attempt."""
    NOT_SENT = "not sent"
    """Not tried: an earlier message of its stream was not taken, or its lease is lost."""


class PublishOutcome(msgspec.Struct, frozen=True):
    """The result for one message, with the reason when it was not published."""

    result: PublishResult
    reason: str = ""


PUBLISHED = PublishOutcome(PublishResult.PUBLISHED)
COMPLETED = PublishOutcome(PublishResult.COMPLETED)
NOT_SENT = PublishOutcome(PublishResult.NOT_SENT)


def failed(reason: str) -> PublishOutcome:
    return PublishOutcome(PublishResult.FAILED, reason)


def unavailable(reason: str) -> PublishOutcome:
    return PublishOutcome(PublishResult.UNAVAILABLE, reason)


class Transport(Protocol):
    """Takes messages out of the outbox."""

    async def publish_batch(self, messages: Sequence[ClaimedMessage]) -> Sequence[PublishOutcome]:
        """Publish messages; those of a stream stand in order. One outcome for each, within a bounded time.

        Raises nothing that the bus outside can cause. Publishing a message again is harmless.
        """

    async def probe(self) -> None:
        """Return when the transport answers; raise `TransportUnavailable` when it does not, within a bounded time."""


class Delivery(msgspec.Struct, frozen=True):
    """What a transport hands over. It comes again until it is acknowledged."""

    topic: str
    body: bytes
    handle: Any = None
    """The transport's own."""


class Subscription(Protocol):
    """Deliveries in order. Whoever takes them stores them in that order, and acknowledges them then.

    A subscription begins again where the last one of its group had acknowledged; nothing is left out. So two that run
    at once, or one that is late, store duplicates but never overtake.
    """

    async def keeps(self) -> float:
        """For how many seconds a message may come again after it was acknowledged, should the bus forget that."""

    async def receive(self, limit: int) -> Sequence[Delivery]:
        """Wait for deliveries, at least one, at most `limit`. After a `TransportUnavailable` it may be called again."""

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These are committed, and need not come again. Raises nothing: one that comes again is a duplicate."""


class DeliveringTransport(Transport, Protocol):
    """A transport that also delivers."""

    def subscribe(self, topics: Collection[str], *, group: str) -> AbstractAsyncContextManager[Subscription]:
        """The messages of these topics for a group, which is a service. Every group gets every message."""


TransportFactory: TypeAlias = Callable[
    ["asyncpg.Pool[asyncpg.Record]", WorkCoordinator], AbstractAsyncContextManager[Transport | DeliveringTransport]
]
"""Makes the transport of one running instance."""


class StoppedStreams:
    """Which streams of a batch have stopped. Shared by transports that send message by message."""

    def __init__(self) -> None:
        self._stopped: set[object] = set()

    def stop(self, message: ClaimedMessage) -> None:
        self._stopped.add(message.stream_id)

    def __contains__(self, message: ClaimedMessage) -> bool:
        return message.stream_id in self._stopped
