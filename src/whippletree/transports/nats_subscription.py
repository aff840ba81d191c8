"""Deliveries of a JetStream stream, in order, through one durable pull consumer for each group.

A consumer alone does not keep order: what is delivered and not acknowledged comes again only after a while, and newer
messages go first. Two things prevent that. The server pins the consumer to one client at a time; other instances of
the group stand by. And the deliveries of a consumer are numbered: when a number is missing, because another client or
a lost connection had it, the consumer is made anew behind the last message that was acknowledged, and everything after
it comes again, in order. What had been stored meanwhile is a duplicate there.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsInbox

from whippletree.dispatch.transport import Delivery
from whippletree.errors import TransportUnavailable
from whippletree.transports import log
from whippletree.transports.nats_link import NatsLink, NatsRefused

NANOSECONDS = 1_000_000_000
_ACK_WAIT = 5
_MAX_ACK_PENDING = 5000
_WRONG_PIN = "423"
_NOTHING_CAME = ("404", "408")
_GROUP = "one"
_CHANGEABLE = ("filter_subjects", "priority_timeout")


class NatsSubscription:
    """One group's deliveries to this client. Survives lost connections."""

    def __init__(
        self,
        link: NatsLink,
        prepare: Callable[[], Awaitable[None]],
        *,
        stream: str,
        consumer: str,
        prefix: str,
        topics: Collection[str],
        takeover: float,
    ) -> None:
        """After `takeover` seconds without a request of its client the server pins the consumer to another one."""
        self.rewinds = 0
        self._link = link
        self._prepare = prepare
        self._address = f"{stream}.{consumer}"
        self._prefix = prefix
        self._config: dict[str, Any] = {
            "name": consumer,
            "durable_name": consumer,
            "ack_policy": "explicit",
            "ack_wait": _ACK_WAIT * NANOSECONDS,
            "max_ack_pending": _MAX_ACK_PENDING,
            "deliver_policy": "all",
            "filter_subjects": sorted(f"{prefix}.{topic}" for topic in topics),
            "priority_groups": [_GROUP],
            "priority_policy": "pinned_client",
            "priority_timeout": int(takeover * NANOSECONDS),
        }
        self._wait = takeover / 2
        """Seconds that the server keeps a request for messages open."""
        self._client: Client | None = None
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()
        self._reply = ""
        self._asked = 0
        self._pin: str | None = None
        self._inbox: NatsInbox | None = None
        self._next: int | None = None
        """The number that the next delivery must have; None after a new connection, when it has to be found out."""
        self._gap = False

    async def keeps(self) -> float:
        await self._prepare()
        stream, _, _ = self._address.partition(".")
        try:
            info = await self._link.api(f"STREAM.INFO.{stream}")
        except NatsRefused as error:
            raise TransportUnavailable(f"cannot look at the stream {stream!r}: {error}") from error
        age = info["config"].get("max_age", 0) if info else 0
        return age / NANOSECONDS if age else math.inf

    async def receive(self, limit: int) -> Sequence[Delivery]:
        deliveries: list[Delivery] = []
        try:
            while not deliveries:
                if self._gap:
                    await self._rewind()
                client = await self._bind()
                if not self._asked:
                    await self._ask(client, limit)
                await self._collect(deliveries, limit)
                await self._ask_ahead(limit)
        except NatsRefused as error:
            await self.close()
            raise TransportUnavailable(f"cannot receive: {error}") from error
        except TransportUnavailable:
            await self.close()
            raise
        return deliveries

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        # What cannot be said now is said when it comes again.
        with contextlib.suppress(nats.errors.Error, OSError):
            for delivery in deliveries:
                await delivery.handle.ack()

    async def leave(self) -> None:
        """Let another client have the consumer at once."""
        if self._pin is not None and self._client is not None:
            with contextlib.suppress(TransportUnavailable, NatsRefused):
                await self._link.api(f"CONSUMER.UNPIN.{self._address}", {"group": _GROUP})
        await self.close()

    async def close(self) -> None:
        """Let go of the connection's side of it. The consumer stays."""
        inbox, self._inbox, self._client = self._inbox, None, None
        if inbox is not None:
            with contextlib.suppress(TransportUnavailable, nats.errors.Error, OSError):
                await self._link.during(inbox.unsubscribe())

    async def _bind(self) -> Client:
        """The open connection, with the consumer made sure of."""
        client = await self._link.open()
        if client is self._client:
            return client
        await self.close()
        await self._prepare()
        self._arrived = asyncio.Queue()
        self._reply = client.new_inbox()
        self._inbox = await self._link.during(client.subscribe(self._reply, cb=self._arrived.put))
        self._asked, self._pin = 0, None
        info = await self._link.api(f"CONSUMER.INFO.{self._address}")
        if info is None:
            info = await self._create(self._config)
        elif changed := {name: self._config[name] for name in _CHANGEABLE if self._differs(info["config"], name)}:
            await self._create({**info["config"], **changed})
        if not info["config"].get("priority_groups"):
            log.one_receiver_only(self._address)
        self._next = None
        self._client = client
        return client

    def _differs(self, found: dict[str, Any], name: str) -> bool:
        theirs, ours = found.get(name, self._config[name]), self._config[name]
        return bool(sorted(theirs) != ours if isinstance(ours, list) else theirs != ours)

    async def _ask(self, client: Client, limit: int) -> None:
        wanted = {"batch": limit, "expires": int(self._wait * NANOSECONDS), "group": _GROUP}
        if self._pin is not None:
            wanted["id"] = self._pin
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._address}"
        await self._link.during(client.publish(subject, msgspec.json.encode(wanted), reply=self._reply))
        self._asked = limit

    async def _ask_ahead(self, limit: int) -> None:
        """One batch comes while the last one is being stored. What is lost of it comes again."""
        if self._client is not None and not self._asked and not self._gap:
            with contextlib.suppress(TransportUnavailable):
                await self._ask(self._client, limit)

    async def _collect(self, deliveries: list[Delivery], limit: int) -> None:
        """Wait for one, and take along what is there already."""
        while len(deliveries) < limit and not (deliveries and self._arrived.empty()):
            message = await self._link.arrival(self._arrived, self._wait + self._link.timeout)
            if message is None:
                self._asked = 0
                return
            headers = message.headers or {}
            if status := headers.get("Status"):
                await self._end_request(status, deliveries)
                return
            self._asked -= 1
            number, pin = message.metadata.sequence.consumer, headers.get("Nats-Pin-Id")
            if (number, pin) != (self._next, self._pin) and not await self._follows(number):
                self._gap = True
                return
            self._pin = pin
            self._next = number + 1
            deliveries.append(Delivery(message.subject.removeprefix(f"{self._prefix}."), message.data, message))

    async def _end_request(self, status: str, deliveries: Sequence[Delivery]) -> None:
        self._asked = 0
        if status == _WRONG_PIN:
            # The consumer is somebody else's for now.
            self._pin = None
        elif status not in _NOTHING_CAME:
            await self.close()
            if not deliveries:
                raise TransportUnavailable(f"NATS ended the request for deliveries ({status})")

    async def _follows(self, number: int) -> bool:
        """Whether all that the consumer delivered before this number, to whomever, is acknowledged."""
        info = await self._link.api(f"CONSUMER.INFO.{self._address}")
        return info is not None and bool(info["ack_floor"]["consumer_seq"] == number - 1)

    async def _rewind(self) -> None:
        """Make the consumer anew behind the last message that was acknowledged."""
        self.rewinds += 1
        info = await self._link.api(f"CONSUMER.INFO.{self._address}")
        config = dict(self._config)
        if info is not None:
            floor = info["ack_floor"]["stream_seq"]
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": floor + 1}
            # A crash after this makes everything come again, which is only slow.
            await self._link.api(f"CONSUMER.DELETE.{self._address}")
        await self._create(config)
        self._gap = False
        await self.close()

    async def _create(self, config: dict[str, Any]) -> dict[str, Any]:
        stream, _, _ = self._address.partition(".")
        info = await self._link.api(f"CONSUMER.CREATE.{self._address}", {"stream_name": stream, "config": config})
        if info is None:
            raise TransportUnavailable(f"the JetStream stream {stream!r} is gone")
        return info
