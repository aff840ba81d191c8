"""A transport that remembers what was published to the app itself and has not come in yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from uuid import UUID

from whippletree.dispatch.transport import DeliveringTransport, Delivery, PublishOutcome, PublishResult, Subscription
from whippletree.errors import InvalidMessage
from whippletree.message import wire
from whippletree.message.envelope import ClaimedMessage


class WatchedTransport:
    """Another transport, watched. `arrived` is called whenever deliveries were stored."""

    def __init__(self, transport: DeliveringTransport, topics: Collection[str], arrived: Callable[[], None]) -> None:
        self._transport = transport
        self._topics = topics
        self._arrived = arrived
        self._published: set[UUID] = set()
        self._stored: set[UUID] = set()

    @property
    def on_the_way(self) -> set[UUID]:
        """Messages that the transport has taken, and that are to come in again."""
        return self._published - self._stored

    async def publish_batch(self, messages: Sequence[ClaimedMessage]) -> Sequence[PublishOutcome]:
        outcomes = await self._transport.publish_batch(messages)
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome.result is PublishResult.PUBLISHED and message.topic in self._topics:
                self._published.add(message.message_id)
        return outcomes

    async def probe(self) -> None:
        await self._transport.probe()

    def subscribe(self, topics: Collection[str], *, group: str) -> AbstractAsyncContextManager[Subscription]:
        return self._subscribed(topics, group)

    @asynccontextmanager
    async def _subscribed(self, topics: Collection[str], group: str) -> AsyncIterator[Subscription]:
        async with self._transport.subscribe(topics, group=group) as subscription:
            yield _Watched(subscription, self._note)

    def _note(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            try:
                self._stored.add(wire.decode(delivery.body).message_id)
            except InvalidMessage:
                # Somebody else's: ours can be read.
                continue
        self._arrived()


class _Watched:
    def __init__(self, subscription: Subscription, note: Callable[[Sequence[Delivery]], None]) -> None:
        self._subscription = subscription
        self._note = note

    async def keeps(self) -> float:
        return await self._subscription.keeps()

    async def receive(self, limit: int) -> Sequence[Delivery]:
        return await self._subscription.receive(limit)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._subscription.ack(deliveries)
        self._note(deliveries)
