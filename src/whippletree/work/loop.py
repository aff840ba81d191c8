"""The loop of one instance: reports what its workers have ended, claims for all of them, hands out what came.

One call does all three, and what ends during a call goes with the next one: the busier an instance, the more each call
carries. Where more waits, what came is handed out while the next call is under way: neither this process nor the
database waits for the other. An instance with nothing to do goes to sleep as `claim/wake.py` tells.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from whippletree.claim.answer import Answer
from whippletree.claim.batch import WorkBatchFlags, WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.held import LEASE_LOST, Run, rejections_of
from whippletree.claim.wake import WakeListener
from whippletree.errors import InstanceEvicted, SchemaMismatch, StoreError, StoreUnavailable
from whippletree.message.envelope import worked_as
from whippletree.message.outcome import Outcome, Rejection
from whippletree.work import log
from whippletree.work.portions import Portions
from whippletree.work.worker import Worker

HELD_TOO_LONG = "held longer than any lease is renewed"
_FIRST_RENEWAL = 2.0
"""Seconds. Until then a stream in hand lies in the way of claims: see `docs/decisions/leases-in-place.md`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The pace of one instance. Times are seconds."""

    polling_interval: float = 1.0
    """How long an instance sleeps at most. Work that arrives wakes it, where it can listen."""
    first_sleep: float = 0.02
    """How long it sleeps after it had work; doubled each time it finds none. What was stored while it was busy, and is
    committed now, wakes nobody: so it is found after about as long as its transaction took."""
    longest_lease: float = 3600
    """A lease is renewed, soon and then at a third of its life, until the work has been in hand for so long."""
    first_pause: float = 0.05
    """Before the second attempt to reach the database; doubled each time, and scattered."""
    longest_pause: float = 5.0
    debug_mode: bool = False
    """Keep finished messages where the views still show them."""


class WorkLoop:
    """Runs the workers of one instance until `stop`. Leases, outcomes and the instance's id are its business alone."""

    def __init__(
        self,
        coordinator: WorkCoordinator,
        workers: Sequence[Worker],
        settings: LoopSettings | None = None,
        *,
        wake: WakeListener | None = None,
        ready: Callable[[], Awaitable[bool]] | None = None,
        rejoined: Callable[[], None] | None = None,
    ) -> None:
        """`ready` is asked before the first call and after every one that failed. `rejoined` is told that the
        instance has a new id, so that its session can take the lock of that id."""
        self.coordinator = coordinator
        self.settings = settings or LoopSettings()
        self.turns = 0
        self.not_ready = 0
        """Calls in a row that did not come about, because the database was not ready."""
        self._workers = list(workers)
        self._wake = wake
        self._ready = ready
        self._rejoined = rejoined or (lambda: None)
        self._stir = asyncio.Event()
        self._grace: float | None = None
        self._outcomes: list[Outcome] = []
        self._portions = Portions()
        self._reached = self._asked = self._asleep = self._more = False
        self._unread: Answer | None = None
        self._coming: Mapping[str, int] = {}
        self._pause = self.settings.first_pause
        self._nap = self._renewal_due = 0.0
        if wake is not None:
            wake.on_wake = self._stir.set

    def stop(self, grace: float = 30) -> None:
        """Ask the loop to end: begun work is finished within the time, the rest goes back untried."""
        self._grace = grace
        self._stir.set()

    async def run(self) -> None:
        """Work until `stop`. Survives a database that cannot be reached; errors of the program it raises."""
        for worker in self._workers:
            worker.start(self._stir.set)
        while self._grace is None:
            answer = await self._turn()
            if answer is None or self._unread:
                continue
            if not self._room():
                await self._sleep(self.settings.polling_interval)
            elif self._asleep:
                self._nap = min(max(2 * self._nap, self.settings.first_sleep), self.settings.polling_interval)
                await self._sleep(self._nap)
            else:
                # What came begins, and may end, before the next call.
                await asyncio.sleep(0)
        self._hand_out()
        await self._drain(self._grace)

    async def _turn(self, *, claim: bool = True) -> Answer | None:
        """One call; None when it did not come about, after a pause."""
        self._stir.clear()
        if not self._reached and self._ready is not None and not await self._ready():
            self.not_ready += 1
            await self._sleep(self.settings.polling_interval)
            return None
        # Taken before the call: what ends meanwhile goes with the next one.
        outcomes, self._outcomes = self._outcomes, []
        for worker in self._workers:
            outcomes.extend(worker.outcomes())
        now, later = self._portions.split(outcomes)
        try:
            # Nothing is claimed while there is still something to report.
            answer = await self._exchange(now, claim and not later)
        except InstanceEvicted as error:
            self._rejoin(error)
            return None
        except StoreError as error:
            if isinstance(error, SchemaMismatch):
                raise
            if not isinstance(error, StoreUnavailable) and self._portions.refused(len(now)):
                self._give_up(now, error)
                outcomes = later
            # Handed in again as it was: the coordinator finds out what of it was taken.
            self._outcomes = outcomes + self._outcomes
            await self._back_off(error)
            return None
        self.turns += 1
        self.not_ready = 0
        self._reached = True
        self._pause = self.settings.first_pause
        self._portions.accepted()
        if later:
            self._outcomes = later + self._outcomes
            self._stir.set()
        self._tell(answer.rejected)
        self._unread = answer
        self._coming = answer.sizes() if self._more else {}
        if not (self._more and self._room()):
            self._hand_out()
        return answer

    async def _exchange(self, outcomes: Sequence[Outcome], claim: bool) -> Answer:
        limits = self._limits() if claim else {}
        flags = WorkBatchFlags.DEBUG_MODE if self.settings.debug_mode else WorkBatchFlags.NONE
        listening = self._wake is not None and self._wake.listening
        report = WorkReport(
            outcomes=outcomes,
            leases=self._due(),
            limits=limits,
            flags=flags if claim else flags | WorkBatchFlags.SKIP_CLAIM,
            wait=listening and any(limit > 0 for limit in limits.values()),
        )
        answer = await self.coordinator.call(report, meanwhile=self._hand_out if self._unread else None)
        self._more = len(answer.claimed) >= min((limit for limit in limits.values() if limit > 0), default=1)
        # Only after a second empty poll: a storer that looked before the first one was committed has not seen us wait.
        empty = not answer.claimed
        self._asleep = empty and (self._asked or not report.wait)
        self._asked = empty and report.wait
        if not empty:
            self._nap = 0.0
        return answer

    def _hand_out(self) -> None:
        answer, self._unread, self._coming = self._unread, None, {}
        if answer is not None:
            batch = self.coordinator.read(answer)
            for worker in self._workers:
                worker.take(batch)

    def _room(self) -> bool:
        return any(limit > 0 for limit in self._limits().values())

    def _limits(self) -> dict[str, int]:
        limits: dict[str, int] = {}
        for worker in self._workers:
            limits.update(worker.wants(self._coming))
        return limits

    def _due(self) -> list[Run]:
        """The leases to renew with this call. Those that have been in hand for too long are given up."""
        now = time.monotonic()
        life = self.coordinator.settings.lease_seconds
        if now < self._renewal_due:
            return []
        self._renewal_due = now + min(life / 12, _FIRST_RENEWAL)
        runs = self.coordinator.held.runs()
        kept = [run for run in runs if now - run.claimed_at < self.settings.longest_lease]
        given_up = [run for run in set(runs).difference(kept) if now - run.renewed_at > life]
        if given_up:
            lost = [rejection for run in given_up for rejection in rejections_of(run.messages, "renew", HELD_TOO_LONG)]
            self.coordinator.held.forget(given_up)
            self._tell(lost)
        first = min(life / 3, _FIRST_RENEWAL)
        return [run for run in kept if now - run.renewed_at >= (life / 3 if run.renewed_at > run.claimed_at else first)]

    def _tell(self, rejections: Sequence[Rejection]) -> None:
        held = self.coordinator.held
        # What has come again meanwhile is in hand under another lease, which is not lost.
        gone = [one for one in rejections if not held.unsettled(one.queue, one.message_id)]
        lost = [one for one in gone if one.reason in (LEASE_LOST, HELD_TOO_LONG)]
        if not lost:
            return
        for worker in self._workers:
            queues = worker.wants({})
            if mine := [one for one in lost if one.queue is None or worked_as(one.queue) in queues]:
                worker.lost(mine)

    def _give_up(self, outcomes: Sequence[Outcome], error: StoreError) -> None:
        """Let go of work whose end the database does not take: its lease runs out, and it is tried again."""
        reports = self.coordinator.held.resolve(outcomes, ())
        runs = {*reports.completed, *reports.failed, *reports.released}
        lost = [rejection for run in runs for rejection in rejections_of(run.messages, "report")]
        log.report_refused(len(lost), error)
        self.coordinator.held.forget(runs)
        self._tell(lost)

    def _rejoin(self, error: InstanceEvicted) -> None:
        lost = self.coordinator.rejoin()
        log.rejoining(error, len(lost), self.coordinator.instance.instance_id)
        self._outcomes.clear()
        self._tell(lost)
        self._rejoined()

    async def _back_off(self, error: StoreError) -> None:
        self._reached = False
        self.not_ready += 1
        log.no_work_batch(self._pause, error)
        pause = random.uniform(self._pause / 2, self._pause)  # noqa: S311 - jitter
        self._pause = min(2 * self._pause, self.settings.longest_pause)
        if self._grace is None:
            await asyncio.sleep(pause)
        else:
            await asyncio.sleep(min(pause, 0.1))

    async def _sleep(self, seconds: float) -> None:
        """Until something has changed, or the time is up."""
        try:
            async with asyncio.timeout(seconds):
                await self._stir.wait()
        except TimeoutError:
            pass

    async def _drain(self, grace: float) -> None:
        """Let the workers finish, and hand in what they have ended. Leases are renewed meanwhile."""
        stopping = asyncio.gather(*(worker.stop(grace) for worker in self._workers))
        stopping.add_done_callback(lambda _: self._stir.set())
        try:
            async with asyncio.timeout(grace + 5):
                while not stopping.done():
                    await self._turn(claim=False)
                    await self._sleep(self.settings.polling_interval)
                while await self._turn(claim=False) is None or self._outcomes:
                    pass
                await self.coordinator.leave()
        except (TimeoutError, StoreError) as error:
            log.ends_without_a_word(self.coordinator.instance, error)
        finally:
            stopping.cancel()
        if stopping.done() and not stopping.cancelled() and (failed := stopping.exception()) is not None:
            raise failed
