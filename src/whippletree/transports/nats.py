"""NATS JetStream.

All topics go into one JetStream stream, in one order. A batch is published atomically where the stream allows it: all
of it is stored or nothing, with one confirmation. Otherwise, and when one of its messages is stored already, message by
message: streams side by side, each stream's next one only after the last was confirmed. `Nats-Msg-Id` lets the server
drop what it has stored before, within its duplicate window; after that the inbox does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from uuid import uuid4

import nats.errors

from whippletree.dispatch.transport import (
    NOT_SENT,
    PUBLISHED,
    PublishOutcome,
    PublishResult,
    StoppedStreams,
    Subscription,
    TransportFactory,
    failed,
    unavailable,
)
from whippletree.errors import InvalidSetting, TransportUnavailable
from whippletree.message.envelope import ClaimedMessage
from whippletree.transports.nats_link import NatsClient, NatsLink, NatsRefused, answer_of
from whippletree.transports.nats_outgoing import Outgoing, is_subject, no_subject
from whippletree.transports.nats_subscription import NANOSECONDS, NatsSubscription

_LARGEST_BATCH = 1000
_SERVER_ERROR = 500
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SHORTEST_TAKEOVER = 0.5
_ALONE = 64
"""So many messages go quicker by themselves than in an atomic batch, which costs the server 10 to 20 ms at any size,"""
_ALONE_OF_A_STREAM = 8
"""unless more than these have to wait for each other."""


class NatsSettings(TypedDict, total=False):
    """What `NatsTransport` can be told, besides its servers."""

    stream: str
    prefix: str
    timeout: float
    takeover: float
    max_age: float | None
    options: Mapping[str, Any] | None


class NatsTransport:
    """Publishes to, and delivers from, one JetStream stream. Use it as a context; it connects when it is needed.

    A stream that is not there is made, with subjects under `prefix`, kept on disk, allowing atomic batches. One that is
    there is left as it is. `options` go to `nats.connect`: credentials, TLS and the like.

    One instance of a service receives; when it says nothing for `takeover` seconds, another one does. Let that be
    longer than it takes to store a batch. `max_age` is how many seconds a stream that is made here keeps its messages;
    without it, for ever. It must not be longer than the inbox knows their ids.
    """

    def __init__(
        self,
        servers: Sequence[str] = ("nats://127.0.0.1:4222",),
        *,
        stream: str = "whippletree",
        prefix: str = "whippletree",
        timeout: float = 5,
        takeover: float = 2,
        max_age: float | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not _NAME.fullmatch(stream):
            raise InvalidSetting(f"{stream!r} cannot name a JetStream stream: use letters, digits, _ and -")
        if not is_subject(prefix):
            raise InvalidSetting(f"{prefix!r} cannot begin a subject: use words joined by dots")
        if takeover < _SHORTEST_TAKEOVER:
            raise InvalidSetting(f"takeover is {takeover}; give at least {_SHORTEST_TAKEOVER} seconds")
        self._stream = stream
        self._takeover = takeover
        self._max_age = max_age
        self._prefix = prefix
        self._link = NatsLink(servers, timeout=timeout, options=options or {})
        self._known_to: NatsClient | None = None
        self._atomic = False

    @classmethod
    def at(cls, *servers: str, **settings: Unpack[NatsSettings]) -> TransportFactory:
        """For `App.transport`: `app.transport(NatsTransport.at("nats://bus:4222"), receives=["orders"])`."""
        # Made once for nothing, so that a wrong setting is said here.
        cls(servers, **settings)
        return lambda _connections, _coordinator: cls(servers, **settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._link.close()

    async def publish_batch(self, messages: Sequence[ClaimedMessage]) -> Sequence[PublishOutcome]:
        try:
            await self.probe()
            client = await self._link.open()
        except TransportUnavailable as error:
            return [unavailable(str(error))] * len(messages)
        outcomes: dict[int, PublishOutcome] = {}
        stopped = StoppedStreams()
        sendable: list[Outgoing] = []
        for place, message in enumerate(messages):
            outgoing = Outgoing(place, message, self._prefix)
            if message in stopped:
                outcomes[place] = NOT_SENT
            elif fault := outgoing.fault(client.max_payload):
                stopped.stop(message)
                outcomes[place] = failed(fault)
            else:
                sendable.append(outgoing)
        stopped = StoppedStreams()
        for start in range(0, len(sendable), _LARGEST_BATCH):
            outcomes.update(await self._publish(client, sendable[start : start + _LARGEST_BATCH], stopped))
        return [outcomes[place] for place in range(len(messages))]

    async def probe(self) -> None:
        """Also makes sure of the stream, once for each connection."""
        client = await self._link.open()
        if client is self._known_to:
            return
        try:
            info = await self._link.api(f"STREAM.INFO.{self._stream}")
            if info is None:
                info = await self._link.api(
                    f"STREAM.CREATE.{self._stream}",
                    {
                        "name": self._stream,
                        "subjects": [f"{self._prefix}.>"],
                        "storage": "file",
                        "allow_atomic": True,
                        "max_age": int((self._max_age or 0) * NANOSECONDS),
                    },
                )
        except NatsRefused as error:
            raise TransportUnavailable(f"the JetStream stream {self._stream!r} is not to be had: {error}") from error
        self._atomic = bool(info and info["config"].get("allow_atomic"))
        self._known_to = client

    def subscribe(self, topics: Collection[str], *, group: str) -> AbstractAsyncContextManager[Subscription]:
        for topic in topics:
            if not is_subject(topic):
                raise InvalidSetting(no_subject(topic))
        if not _NAME.fullmatch(group):
            raise InvalidSetting(f"{group!r} cannot name a JetStream consumer: use letters, digits, _ and -")
        return self._subscribed(frozenset(topics), group)

    @asynccontextmanager
    async def _subscribed(self, topics: frozenset[str], group: str) -> AsyncIterator[Subscription]:
        subscription = NatsSubscription(
            self._link,
            self.probe,
            stream=self._stream,
            consumer=group,
            prefix=self._prefix,
            topics=topics,
            takeover=self._takeover,
        )
        try:
            yield subscription
        finally:
            await subscription.leave()

    async def _publish(
        self, client: NatsClient, batch: Sequence[Outgoing], stopped: StoppedStreams
    ) -> dict[int, PublishOutcome]:
        outcomes = {one.place: NOT_SENT for one in batch if one.message in stopped}
        batch = [one for one in batch if one.place not in outcomes]
        turns = list(_turns(batch))
        try:
            worth_it = self._atomic and (len(batch) > _ALONE or len(turns) > _ALONE_OF_A_STREAM)
            if worth_it and await self._publish_atomically(client, batch):
                return outcomes | dict.fromkeys((one.place for one in batch), PUBLISHED)
            for turn in turns:
                waiting = [one for one in turn if one.message not in stopped]
                sent = asyncio.gather(*(self._publish_one(client, one) for one in waiting))
                for one, outcome in zip(waiting, await self._link.during(sent), strict=True):
                    outcomes[one.place] = outcome
                    if outcome.result is not PublishResult.PUBLISHED:
                        stopped.stop(one.message)
        except TransportUnavailable as error:
            for one in batch:
                stopped.stop(one.message)
            return dict.fromkeys((one.place for one in batch), unavailable(str(error))) | outcomes
        return {one.place: NOT_SENT for one in batch} | outcomes

    async def _publish_atomically(self, client: NatsClient, batch: Sequence[Outgoing]) -> bool:
        """True when all of it is stored; False when nothing is, and each message may be tried by itself."""
        *first, last = batch
        batch_id = uuid4().hex
        # What goes astray leaves a gap in the numbers, and the batch is refused: the last one need not say more.
        final = {
            **last.headers(self._stream),
            "Nats-Batch-Id": batch_id,
            "Nats-Batch-Sequence": str(len(batch)),
            "Nats-Batch-Commit": "1",
        }

        async def send() -> bytes:
            await client.send(b"".join([one.frame(batch_id, number) for number, one in enumerate(first, 1)]))
            return (await client.request(last.subject, last.body, timeout=self._link.timeout, headers=final)).data

        try:
            answer_of(await self._link.during(send()))
        except NatsRefused as error:
            if error.code >= _SERVER_ERROR:
                raise TransportUnavailable(str(error)) from error
            return False
        return True

    async def _publish_one(self, client: NatsClient, one: Outgoing) -> PublishOutcome:
        try:
            sent = client.request(one.subject, one.body, timeout=self._link.timeout, headers=one.headers(self._stream))
            answer_of((await sent).data)
        except (nats.errors.Error, OSError) as error:
            return unavailable(f"NATS did not answer: {error or type(error).__name__}")
        except NatsRefused as error:
            return unavailable(str(error)) if error.code >= _SERVER_ERROR else failed(str(error))
        return PUBLISHED


def _turns(batch: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """First the first of every stream, then the second of those that have one, and so on."""
    streams: dict[object, list[Outgoing]] = {}
    for one in batch:
        streams.setdefault(one.message.stream_id, []).append(one)
    turn = 0
    while waiting := [run[turn] for run in streams.values() if turn < len(run)]:
        yield waiting
        turn += 1
