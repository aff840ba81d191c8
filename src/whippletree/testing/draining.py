"""Works off what an app has before it, in this process, until the database says that nothing is left for now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar, cast
from uuid import UUID

import asyncpg

from whippletree.app import App
from whippletree.claim.batch import WorkBatch, WorkReport
from whippletree.claim.coordinator import HandedIn, WorkCoordinator
from whippletree.claim.wake import WakeListener
from whippletree.message.envelope import ClaimedMessage, PerspectiveWork, ReceptorWork
from whippletree.message.outcome import Failure, Outcome
from whippletree.service import Service
from whippletree.store.database import prepared_pool, translated
from whippletree.store.feed import Feed
from whippletree.store.statements import call
from whippletree.store.transaction import Connection
from whippletree.testing.on_the_way import WatchedTransport
from whippletree.work.feed_head import FeedHead
from whippletree.work.subscriber_row import make_known
from whippletree.work.subscription import Subscription
from whippletree.work.worker import Worker

_Piece = TypeVar("_Piece", ClaimedMessage, ReceptorWork, PerspectiveWork)

_LEASE = 3600.0
"""Seconds: longer than any test, so that nothing has to be renewed."""

_FRUITLESS = 3
"""Polls that got nothing of what is ready: somebody else has it, or keeps it."""

_PASSED_OVER = """
SELECT min(s.ready_at) FROM {schema}.wh_active_streams s
WHERE s.queue = ANY ($1) AND s.instance_id IS NULL AND s.error IS NULL AND NOT {schema}.is_parked(s.ready_at)
  AND {schema}.work_through(s.queue, s.stream_id, s.head_version, 1) IS NOT NULL
  AND NOT EXISTS (SELECT FROM {schema}.wh_messages m WHERE m.queue = s.queue AND m.stream_id = s.stream_id
    AND m.version = s.head_version + 1 AND {schema}.is_ahead(m.scheduled_for, clock_timestamp()))
"""


class NotDrained(AssertionError):
    """Something failed, is parked or was given up, or cannot be done here. The text says why, as `whippletree why`."""


async def drained(app: App, *, at_most: int = 10_000, within: float = 60) -> None:
    """Run everything that an app has until nothing is left that could be done now: receptors, perspectives and
    subscribers, and where it has a transport also the outbox and what comes in of it.

    What they publish is worked off too, and what was scheduled and is due. A message that fails is not tried again:
    when the rest is done, `NotDrained` says why it failed. What is due later is left alone. It gives up when so many
    messages were handled and there are still more, and when it has waited for your functions for so many seconds.
    """
    async with prepared_pool(app.settings, size=8) as pool, draining(app, pool) as drain:
        await drain.run(at_most, within)


class NotingCoordinator(WorkCoordinator):
    """Remembers why work failed, which a stream forgets when it is claimed for its retry."""

    errors: dict[UUID, str]

    async def process_work_batch(self, report: WorkReport, *, as_of: datetime | None = None) -> WorkBatch:
        self._note(report.outcomes)
        return await super().process_work_batch(report, as_of=as_of)

    async def report(self, outcomes: Sequence[Outcome], *, on: Connection, as_of: datetime | None = None) -> HandedIn:
        self._note(outcomes)
        return await super().report(outcomes, on=on, as_of=as_of)

    def _begin(self) -> None:
        super()._begin()
        self.errors = {}

    def _note(self, outcomes: Sequence[Outcome]) -> None:
        self.errors.update({found.message_id: found.error for found in outcomes if isinstance(found, Failure)})


@asynccontextmanager
async def draining(app: App, pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[Drain]:
    """One instance of the app, whose turns are taken by the caller. It leaves at the end, whatever it holds."""
    service = Service(app)
    async with AsyncExitStack() as stack:
        stack.enter_context(app.using(pool))
        await make_all_known(service, pool)
        settings = replace(service._coordinator_settings(), lease_seconds=_LEASE)  # noqa: SLF001 - the service alone puts workers together, for tests too
        coordinator = NotingCoordinator(pool, service.instance, settings, schema=app.settings.schema)
        workers = service._workers(coordinator, pool)  # noqa: SLF001 - as above
        drain = Drain(app, pool, coordinator, workers, _followed(service, pool))
        if app.outside is not None:
            transport: Any = await stack.enter_async_context(app.outside.factory(pool, coordinator))
            if app.outside.receives and hasattr(transport, "subscribe"):
                transport = drain.transport = WatchedTransport(transport, app.outside.receives, drain.stir)
            workers += service._outbox_worker(transport)  # noqa: SLF001 - as above
            if (receiver := service._inbox_receiver(transport, pool)) is not None:  # noqa: SLF001 - as above
                drain.receiving = asyncio.create_task(receiver.run(), name="whippletree receive")
                drain.receiving.add_done_callback(lambda _: drain.stir())
        await drain.begin()
        try:
            yield drain
        finally:
            if drain.receiving is not None:
                drain.receiving.cancel()
                await asyncio.wait([drain.receiving])
            await asyncio.gather(*(worker.stop(0) for worker in workers))
            await coordinator.leave()


async def make_all_known(service: Service, pool: asyncpg.Pool[asyncpg.Record]) -> None:
    """Let the database know what a service has, as if an instance of it had been started."""
    await service._register(pool)  # noqa: SLF001 - the service alone knows how
    schema = service.app.settings.schema
    for follower in service.followers():
        await make_known(follower, Feed(pool, schema=schema), pool, schema=schema)


def _followed(service: Service, pool: asyncpg.Pool[asyncpg.Record]) -> list[Subscription]:
    schema, instance_id = service.app.settings.schema, service.instance.instance_id
    feed = Feed(pool, schema=schema)
    return [
        Subscription(follower, pool, feed, instance_id, lambda _: None, schema=schema)
        for follower in service.followers()
    ]


@dataclass(slots=True)
class Drain:
    """Takes the turns that a loop would take, and ends when the database has nothing more for it."""

    app: App
    pool: asyncpg.Pool[asyncpg.Record]
    coordinator: NotingCoordinator
    workers: Sequence[Worker]
    followed: Sequence[Subscription]
    transport: WatchedTransport | None = None
    receiving: asyncio.Task[None] | None = None
    _stir: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: set[str] = field(default_factory=set)
    _seen: set[tuple[str, UUID]] = field(default_factory=set)
    _kept: dict[tuple[str, UUID], str] = field(default_factory=dict)
    _letters: int = 0

    async def begin(self) -> None:
        for worker in self.workers:
            worker.start(self.stir)
        self._letters = await self._newest_letter()

    def stir(self) -> None:
        """Something has changed: it is time for another turn."""
        self._stir.set()

    async def run(self, at_most: int, within: float) -> None:
        """Work until nothing is left. Raises `NotDrained`."""
        try:
            async with asyncio.timeout(within):
                while (done := await self.work(at_most)) and await self._follow():
                    pass
        except TimeoutError:
            raise NotDrained(f"after {within:g} seconds {self._in_hand()}") from None
        await self.coordinator.leave()
        sentences = await self._failures()
        if not done:
            sentences += [row[0] for queue in await self._ready() for row in await self._ask("why", queue)]
            sentences = sentences or ["somebody else had what is left, or has it"]
        if sentences:
            raise NotDrained("\n".join(sentences))

    async def work(self, at_most: int = 10_000) -> bool:
        """Take turns until nothing is left; False when what is left cannot be had."""
        fruitless, as_of = 0, None
        while fruitless < _FRUITLESS:
            if (handled := len(self._seen) + sum(one.applied for one in self.followed)) > at_most:
                raise NotDrained(
                    f"{handled} messages were handled, and there are still more. Does something publish without end? "
                    "If not, say at_most="
                )
            if self.receiving is not None and self.receiving.done():
                self.receiving.result()
            self._stir.clear()
            await self._ask("store_due_messages")
            report = WorkReport(outcomes=self._outcomes(), limits=self._limits())
            batch = self._without_retries(await self.coordinator.process_work_batch(report, as_of=as_of))
            as_of = None
            for worker in self.workers:
                worker.take(batch)
            if not batch.empty:
                fruitless = 0
            elif self._begun() or (self.transport and self.transport.on_the_way):
                await self._stir.wait()
            elif await self._ready() or (as_of := await self._passed_over()):
                fruitless += 1
            else:
                return True
        return False

    async def _follow(self) -> bool:
        """Let subscribers, and perspectives with a key, follow to the end of the feed; whether any had work to do."""
        before = sum(one.applied for one in self.followed)
        for subscription in self.followed:
            head = FeedHead(Feed(self.pool, schema=self.app.settings.schema), WakeListener(), 1)
            if subscription.name not in self._stopped and not await subscription.catch_up(head):
                self._stopped.add(subscription.name)
        return sum(one.applied for one in self.followed) > before

    def _begun(self) -> list[str]:
        """What is in hand and will be reported, in words."""
        runs = [run for run in self.coordinator.held.runs() if (run.queue, run.stream_id) not in self._kept]
        return [f"stream {run.stream_id} in {run.queue}" for run in runs]

    def _in_hand(self) -> str:
        on_the_way = self.transport.on_the_way if self.transport else ()
        left = self._begun() + [f"message {message_id}, which has not come in" for message_id in on_the_way]
        return f"these are not finished: {', '.join(left)}" if left else "a subscriber is not finished"

    def _outcomes(self) -> list[Outcome]:
        return [outcome for worker in self.workers for outcome in worker.outcomes()]

    def _limits(self) -> dict[str, int]:
        return {queue: limit for worker in self.workers for queue, limit in worker.wants({}).items()}

    def _without_retries(self, batch: WorkBatch) -> WorkBatch:
        """Keep in hand what failed before and comes again: how often it is called must not depend on the time."""

        def first(pieces: Sequence[_Piece]) -> list[_Piece]:
            again = [p for p in pieces if p.attempts > 1 and (p.queue, p.message_id) in self._seen]
            self._kept.update({(p.queue, p.stream_id): self.coordinator.errors.get(p.message_id, "") for p in again})
            self._seen.update((piece.queue, piece.message_id) for piece in pieces)
            return [piece for piece in pieces if (piece.queue, piece.stream_id) not in self._kept]

        return replace(
            batch,
            claimed_outbox_messages=first(batch.claimed_outbox_messages),
            claimed_inbox_messages=first(batch.claimed_inbox_messages),
            claimed_receptor_work=first(batch.claimed_receptor_work),
            claimed_perspective_work=first(batch.claimed_perspective_work),
        )

    async def _ready(self) -> list[str]:
        """The queues of this app in which something could be done now."""
        mine = self._limits()
        rows = await self._ask("queue_overview")
        return [row["queue"] for row in rows if row["queue"] in mine and row["ready"] + row["orphaned"] > 0]

    async def _passed_over(self) -> datetime | None:
        """When a claim would look again at a stream that it met while somebody was storing into it."""
        return cast(
            datetime | None,
            await self.pool.fetchval(_PASSED_OVER.format(schema=self.app.settings.schema), list(self._limits())),
        )

    async def _failures(self) -> list[str]:
        """What has stopped, and what was given up, in sentences."""
        sentences = [
            f"work of stream {stream} in {queue} failed: {error}" for (queue, stream), error in self._kept.items()
        ]
        things = [str(stream_id) for _, stream_id in self._kept]
        for row in await self._ask("stopped_streams", None, True, 100):
            sentences.append(
                f"{row['message_type'] or 'an event'}, version {row['version']} of stream {row['stream_name']} in "
                f"{row['queue']}, failed: {row['error']}"
            )
            things.append(str(row["stream_id"]))
        for name in sorted(self._stopped):
            sentences += [row[0] for row in await self._ask("why_subscriber", name)]
        letters = await self._ask("dead_letters", 100)
        things += [str(row["message_id"]) for row in letters if row["letter_id"] > self._letters]
        return sentences + [row[0] for thing in dict.fromkeys(things) for row in await self._ask("why", thing)]

    async def _newest_letter(self) -> int:
        return max((row["letter_id"] for row in await self._ask("dead_letters", 1)), default=0)

    async def _ask(self, function: str, *arguments: object) -> list[asyncpg.Record]:
        with translated():
            return await self.pool.fetch(call(self.app.settings.schema, function, len(arguments)), *arguments)
