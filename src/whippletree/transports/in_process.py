"""Inside one process: for a service that subscribes to itself, for programs of several services, and for tests.

Nothing is kept in memory alone. A message counts as published when every subscription has acknowledged it, that is when
it is committed to the inboxes; until then it is in the outbox. A process that dies in between publishes it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from whippletree.dispatch.transport import (
    NOT_SENT,
    PUBLISHED,
    Delivery,
    PublishOutcome,
    StoppedStreams,
    Subscription,
    failed,
    unavailable,
)
from whippletree.errors import TransportUnavailable
from whippletree.message import wire
from whippletree.message.envelope import ClaimedMessage

_NOBODY = "nobody subscribes in this process"


class InProcessTransport:
    """Hands messages from the relay of this process to its receivers."""

    def __init__(self, *, timeout: float = 10) -> None:
        self._timeout = timeout
        self._subscriptions: list[_InProcessSubscription] = []

    async def publish_batch(self, messages: Sequence[ClaimedMessage]) -> Sequence[PublishOutcome]:
        if not self._subscriptions:
            return [unavailable(_NOBODY)] * len(messages)
        outcomes: list[PublishOutcome | asyncio.Future[list[None]]] = []
        stopped = StoppedStreams()
        for message in messages:
            takers = [subscription for subscription in self._subscriptions if message.topic in subscription.topics]
            if message in stopped:
                outcomes.append(NOT_SENT)
            elif takers:
                body = wire.encode(message)
                outcomes.append(asyncio.gather(*(taker.put(message.topic, body) for taker in takers)))
            else:
                stopped.stop(message)
                outcomes.append(failed(f"nobody subscribes to topic {message.topic!r}; let a service do so"))
        sent = [outcome for outcome in outcomes if not isinstance(outcome, PublishOutcome)]
        if sent:
            await asyncio.wait(sent, timeout=self._timeout)
        return [outcome if isinstance(outcome, PublishOutcome) else _confirmed(outcome) for outcome in outcomes]

    async def probe(self) -> None:
        if not self._subscriptions:
            raise TransportUnavailable(_NOBODY)

    def subscribe(self, topics: Collection[str], *, group: str) -> AbstractAsyncContextManager[Subscription]:
        return self._subscribed(frozenset(topics))

    @asynccontextmanager
    async def _subscribed(self, topics: frozenset[str]) -> AsyncIterator[Subscription]:
        subscription = _InProcessSubscription(topics)
        self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.remove(subscription)
            subscription.close()


class _InProcessSubscription:
    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        self._unconfirmed: set[asyncio.Future[None]] = set()

    def put(self, topic: str, body: bytes) -> asyncio.Future[None]:
        """Done when the delivery is acknowledged."""
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unconfirmed.add(confirmed)
        confirmed.add_done_callback(self._unconfirmed.discard)
        self._deliveries.put_nowait(Delivery(topic, body, confirmed))
        return confirmed

    async def keeps(self) -> float:
        return 0

    async def receive(self, limit: int) -> Sequence[Delivery]:
        deliveries: list[Delivery] = []
        while not deliveries or (len(deliveries) < limit and not self._deliveries.empty()):
            delivery = await self._deliveries.get()
            # One that was given up is published again, and would only be a duplicate.
            if not delivery.handle.cancelled():
                deliveries.append(delivery)
        return deliveries

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if not delivery.handle.done():
                delivery.handle.set_result(None)

    def close(self) -> None:
        for confirmed in list(self._unconfirmed):
            confirmed.cancel()


def _confirmed(future: asyncio.Future[list[None]]) -> PublishOutcome:
    if not future.done():
        future.cancel()
        return unavailable("no receiver has stored the message in time")
    return unavailable("the subscription was closed") if future.cancelled() else PUBLISHED
