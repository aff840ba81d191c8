"""Receives: what a transport delivers is committed to the inbox in batches, in order, and acknowledged then.

A crash anywhere leaves a delivery that is not acknowledged: it comes again, and the inbox knows it. No more is asked
for than one batch at a time, so a slow database slows the transport down instead of filling the memory.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from datetime import timedelta

import asyncpg

from whippletree.dispatch.transport import DeliveringTransport, Delivery, Subscription
from whippletree.errors import Error, InvalidMessage, InvalidSetting, TransportUnavailable
from whippletree.message.codec import MAX_PAYLOAD_BYTES
from whippletree.message.envelope import InboxMessage
from whippletree.store.database import translated
from whippletree.store.deliveries import Poison, Received, read, receive, unstorable
from whippletree.store.inbox import StoreOutcome
from whippletree.store.statements import call
from whippletree.telemetry import Counters, span
from whippletree.work import log
from whippletree.work.outage import BackOff


class InboxReceiver:
    """Brings the messages of some topics into the inbox of one service, which is the group that receives them."""

    def __init__(
        self,
        transport: DeliveringTransport,
        connections: asyncpg.Pool[asyncpg.Record],
        *,
        topics: Collection[str],
        group: str,
        schema: str = "whippletree",
        batch_size: int = 500,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        back_off: BackOff | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self._transport = transport
        self._connections = connections
        self._topics = topics
        self._group = group
        self._schema = schema
        self._batch_size = batch_size
        self._max_payload_bytes = max_payload_bytes
        self._back_off = back_off or BackOff()

    async def run(self) -> None:
        """Receive until cancelled, through outages of the transport and of the database.

        Raises `InvalidSetting` when the bus keeps messages for longer than the inbox knows their ids: what the bus
        delivers anew would be handled a second time.
        """
        tries, checked = 0, False
        async with self._transport.subscribe(self._topics, group=self._group) as subscription:
            while True:
                try:
                    if not checked:
                        await self._check(subscription)
                        checked = True
                    deliveries = await subscription.receive(self._batch_size)
                except TransportUnavailable as error:
                    log.receives_nothing(self._group, error, again=tries > 0)
                    await asyncio.sleep(self._back_off.pause(tries))
                    tries += 1
                    continue
                tries = 0
                await self._store_until_stored(deliveries)
                await subscription.ack(deliveries)

    async def _check(self, subscription: Subscription) -> None:
        keeps = await subscription.keeps()
        try:
            with translated():
                retention: timedelta | None = await self._connections.fetchval(
                    call(self._schema, "deduplication_retention", 0)
                )
        except Error as error:
            raise TransportUnavailable(f"its database does not answer: {error}") from error
        if retention is not None and keeps > retention.total_seconds():
            kept = "for ever" if keeps == math.inf else f"for {timedelta(seconds=keeps)}"
            raise InvalidSetting(
                f"the bus keeps messages {kept}, but the inbox of schema {self._schema} forgets their ids after "
                f"{retention}: one that is delivered anew would be handled twice. Let the bus keep them for less time "
                "(a JetStream stream's max_age), or the inbox know them for longer (change_deduplication_retention)"
            )

    async def _store_until_stored(self, deliveries: Sequence[Delivery]) -> None:
        received = [read(one.topic, one.body, max_payload_bytes=self._max_payload_bytes) for one in deliveries]
        headers = (one.headers for one in received if isinstance(one, InboxMessage))
        with span("receive", headers, group=self._group, messages=len(received)):
            await self._keep_storing(deliveries, received)

    async def _keep_storing(self, deliveries: Sequence[Delivery], received: Sequence[Received]) -> None:
        tries = 0
        while True:
            try:
                try:
                    await self._store(received)
                except InvalidMessage:
                    # The database is stricter than we are.
                    for delivery, one in zip(deliveries, received, strict=True):
                        await self._store_one(delivery, one)
                return
            except Error as error:
                log.cannot_store_deliveries(self._group, error)
                await asyncio.sleep(self._back_off.pause(tries))
                tries += 1

    async def _store_one(self, delivery: Delivery, one: Received) -> None:
        """The message; or else its stand-in; or else the delivery as a dead letter alone, which nothing prevents."""
        ways = [one]
        if isinstance(one, InboxMessage):
            ways.append(unstorable(one, delivery.topic, delivery.body, "the database does not take it"))
        ways.append(Poison(topic=delivery.topic, body=delivery.body, error="the database does not take it"))
        for way in ways:
            try:
                await self._store([way])
                return
            except InvalidMessage as error:
                log.delivery_not_storable(delivery.topic, error)

    async def _store(self, received: Sequence[Received]) -> None:
        with translated():
            async with self._connections.acquire() as connection, connection.transaction():
                try:
                    outcomes = await receive(received, on=connection, schema=self._schema)
                except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError) as error:
                    raise InvalidMessage(f"PostgreSQL does not take it: {type(error).__name__}") from None
        self._count(received, outcomes)

    def _count(self, received: Sequence[Received], outcomes: Sequence[StoreOutcome]) -> None:
        poison = [one for one in received if isinstance(one, Poison)]
        conflicts = outcomes.count(StoreOutcome.CONFLICT)
        self.counters.deliveries_stored += outcomes.count(StoreOutcome.STORED)
        self.counters.deliveries_duplicate += outcomes.count(StoreOutcome.DUPLICATE)
        self.counters.deliveries_conflict += conflicts
        self.counters.deliveries_parked += len(poison)
        for one in poison:
            log.delivery_set_aside(one.topic, one.identity, one.error)
        if conflicts:
            log.deliveries_conflict(conflicts)
