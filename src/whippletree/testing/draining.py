"""Works off what an app has before it, in this process, until the database says that nothing is left for now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar
from uuid import UUID

import asyncpg

from whippletree.app import App
from whippletree.claim.batch import WorkBatch, WorkReport
from whippletree.claim.coordinator import HandedIn, WorkCoordinator
from whippletree.message.envelope import ClaimedMessage, PerspectiveWork, ReceptorWork
from whippletree.message.outcome import Failure, Outcome
from whippletree.service import Service
from whippletree.store.database import prepared_pool, translated
from whippletree.store.statements import call
from whippletree.store.transaction import Connection
from whippletree.work.worker import Worker

_Piece = TypeVar("_Piece", ClaimedMessage, ReceptorWork, PerspectiveWork)

_LEASE = 3600.0
"""Seconds: longer than any test, so that nothing has to be renewed."""

_FRUITLESS = 3
"""Polls that got nothing of what is ready: somebody else has it, or keeps it."""


class NotDrained(AssertionError):
    """Something failed, is parked or was given up, or cannot be done here. The text says why, as `whippletree why`."""


async def drained(app: App) -> None:
    """Run the receptors, the perspectives and the outbox of an app until nothing is left that could be done now.

    What they publish is worked off too, and what was scheduled and is due. A message that fails is not tried again:
    when the rest is done, `NotDrained` says why it failed. What is due later is left alone.
    """
    async with prepared_pool(app.settings, size=8) as pool, draining(app, pool) as drain:
        await drain.run()


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
        await service._register(pool)  # noqa: SLF001 - the service alone puts workers together, for tests too
        settings = replace(service._coordinator_settings(), lease_seconds=_LEASE)  # noqa: SLF001 - as above
        coordinator = NotingCoordinator(pool, service.instance, settings, schema=app.settings.schema)
        workers = service._workers(coordinator, pool)  # noqa: SLF001 - as above
        if app.outside is not None:
            transport = await stack.enter_async_context(app.outside.factory(pool, coordinator))
            workers += service._outbox_worker(transport)  # noqa: SLF001 - as above
        drain = Drain(app, pool, coordinator, workers)
        await drain.begin()
        try:
            yield drain
        finally:
            await asyncio.gather(*(worker.stop(0) for worker in workers))
            await coordinator.leave()


@dataclass(slots=True)
class Drain:
    """Takes the turns that a loop would take, and ends when the database has nothing more for it."""

    app: App
    pool: asyncpg.Pool[asyncpg.Record]
    coordinator: NotingCoordinator
    workers: Sequence[Worker]
    _stir: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: set[tuple[str, UUID]] = field(default_factory=set)
    _kept: dict[tuple[str, UUID], str] = field(default_factory=dict)
    _letters: int = 0

    async def begin(self) -> None:
        for worker in self.workers:
            worker.start(self._stir.set)
        self._letters = await self._newest_letter()

    async def run(self) -> None:
        """Work until nothing is left. Raises `NotDrained`."""
        done = await self.work()
        await self.coordinator.leave()
        sentences = await self._failures()
        if not done:
            sentences += [row[0] for queue in await self._ready() for row in await self._ask("why", queue)]
        if sentences:
            raise NotDrained("\n".join(sentences))

    async def work(self) -> bool:
        """Take turns until nothing is left; False when what is left cannot be had."""
        fruitless = 0
        while fruitless < _FRUITLESS:
            self._stir.clear()
            await self._ask("store_due_messages")
            report = WorkReport(outcomes=self._outcomes(), limits=self._limits())
            batch = self._without_retries(await self.coordinator.process_work_batch(report))
            for worker in self.workers:
                worker.take(batch)
            if not batch.empty:
                fruitless = 0
            elif any((run.queue, run.stream_id) not in self._kept for run in self.coordinator.held.runs()):
                await self._stir.wait()
            elif not await self._ready():
                return True
            else:
                fruitless += 1
        return False

    def _outcomes(self) -> list[Outcome]:
        return [outcome for worker in self.workers for outcome in worker.outcomes()]

    def _limits(self) -> dict[str, int]:
        return {queue: limit for worker in self.workers for queue, limit in worker.wants().items()}

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
        letters = await self._ask("dead_letters", 100)
        things += [str(row["message_id"]) for row in letters if row["letter_id"] > self._letters]
        return sentences + [row[0] for thing in dict.fromkeys(things) for row in await self._ask("why", thing)]

    async def _newest_letter(self) -> int:
        return max((row["letter_id"] for row in await self._ask("dead_letters", 1)), default=0)

    async def _ask(self, function: str, *arguments: object) -> list[asyncpg.Record]:
        with translated():
            return await self.pool.fetch(call(self.app.settings.schema, function, len(arguments)), *arguments)
