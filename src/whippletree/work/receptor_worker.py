"""Calls receptors: for received messages, and for stored events.

Two kinds of tasks do the work. Callers take streams whose next message needs no transaction of ours; many run at once,
for they mostly wait. Committers take what needs one: receptors that ask for it, and the ends of those that returned
messages, acted outside or gave up; each holds one connection. A stream is with one at a time: that is its order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import asyncpg

from whippletree.claim.batch import WorkBatch
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.complete.retry import Next, decide
from whippletree.dispatch.error_text import error_text, sqlstate
from whippletree.dispatch.handling import CallFailed, Handling, Unhandled, headers_of
from whippletree.dispatch.receptor import Receptors
from whippletree.dispatch.routing import Router
from whippletree.message.envelope import Queue
from whippletree.message.outcome import Outcome, Rejection, Verdict
from whippletree.telemetry import Counters, span
from whippletree.work import log
from whippletree.work.commit_group import GROUP_LIMIT, CannotCommit, CommitGroups
from whippletree.work.lane import Handled, Lane, completion, failure, lanes_of
from whippletree.work.outage import BackOff
from whippletree.work.room import Room
from whippletree.work.settings import ReceptorSettings

_TRIES_ALONE = 3


class ReceptorWorker:
    """The worker of an instance's receptors. See `Worker` for what each call means."""

    def __init__(
        self,
        coordinator: WorkCoordinator,
        connections: asyncpg.Pool[asyncpg.Record],
        handling: Handling,
        receptors: Receptors,
        router: Router,
        *,
        settings: ReceptorSettings | None = None,
        schema: str = "whippletree",
        counters: Counters | None = None,
    ) -> None:
        self.settings = settings or ReceptorSettings()
        self._counters = counters or Counters()
        self._coordinator = coordinator
        self._handling = handling
        self._threads = ThreadPoolExecutor(self.settings.concurrency, thread_name_prefix="whippletree receptor")
        self._groups = CommitGroups(
            connections,
            coordinator,
            handling,
            router,
            BackOff(first_pause=0.05, longest_pause=self.settings.longest_pause),
            schema=schema,
            threads=self._threads,
            counters=self._counters,
        )
        smallest, largest = max(self.settings.concurrency, GROUP_LIMIT), self.settings.capacity
        queues = [str(Queue.INBOX), *(receptor.queue for receptor in receptors if receptor.event_types)]
        self._rooms = {queue: Room(smallest=smallest, largest=largest) for queue in queues}
        self._lanes: dict[tuple[str, object], Lane] = {}
        self._next: dict[Lane, Lane] = {}
        self._calling: set[Lane] = set()
        self._unsettled: list[Lane] = []
        self._callers: asyncio.Queue[Lane] = asyncio.Queue()
        self._committers: asyncio.Queue[Lane] = asyncio.Queue()
        self._free = 0
        self._outcomes: list[Outcome] = []
        self._stopping = False
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: Callable[[], None] = lambda: None

    def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._tasks = [asyncio.create_task(self._call_forever()) for _ in range(self.settings.concurrency)]
        self._tasks += [asyncio.create_task(self._commit_forever()) for _ in range(self.settings.transactions)]

    def wants(self, coming: Mapping[str, int]) -> Mapping[str, int]:
        for task in () if self._stopping else filter(asyncio.Task.done, self._tasks):
            task.result()  # It raises: an instance does not go on with half of its work, silently.
        if self._stopping:
            return dict.fromkeys(self._rooms, 0)
        return {queue: room.free(coming.get(queue, 0)) for queue, room in self._rooms.items()}

    def take(self, batch: WorkBatch) -> None:
        self._resume_settled()
        for lane in lanes_of(chain(batch.claimed_inbox_messages, batch.claimed_receptor_work), batch.claimed_at):
            if lane.queue not in self._rooms:
                continue
            self._rooms[lane.queue].taken(lane.size)
            self._count(lane, "received", lane.size)
            before = self._lanes.get((lane.queue, lane.stream_id))
            self._lanes[lane.queue, lane.stream_id] = lane
            if before is None:
                self._pass_on(lane)
                continue
            # Its lease ran out, or the stream would not come again; or it has just ended and is not put away yet.
            self._next[before] = lane
            if before.work or before.handled:
                self._lose(before)

    def outcomes(self) -> Sequence[Outcome]:
        self._resume_settled()
        outcomes, self._outcomes = self._outcomes, []
        for lane in self._calling:
            if lane.done and not lane.lost:
                outcomes += lane.hand_over()
        return outcomes

    def lost(self, rejections: Sequence[Rejection]) -> None:
        ids = {rejection.message_id for rejection in rejections}
        for lane in list(self._lanes.values()):
            if lane.holds(ids) or lane.reported in ids:
                self._lose(lane)

    async def stop(self, grace: float) -> None:
        self._stopping = True
        for queue in (self._callers, self._committers):
            for _ in range(queue.qsize()):
                self._pass_on(queue.get_nowait())
        try:
            async with asyncio.timeout(grace):
                while self._lanes:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.grace_over(len(self._lanes))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in list(self._lanes.values()):
            lane.give_back()
            self._put_away(lane)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _pass_on(self, lane: Lane) -> None:
        """To whom the next message of a lane belongs. While stopping, only what is half done goes on."""
        if self._stopping and lane.handled is None:
            lane.give_back()
        if lane.lost or (lane.handled is None and not lane.work):
            self._put_away(lane)
        elif lane.handled is None and not self._handling.transactional(lane.work[0]):
            # What waits is resumed once its lease has been renewed.
            (self._callers.put_nowait if lane.in_time(self._coordinator) else self._unsettled.append)(lane)
        elif lane.reported is not None and self._coordinator.held.unsettled(lane.queue, lane.reported):
            # A commit would overtake the report of what came before in this stream.
            self._unsettled.append(lane)
            self._changed()
        else:
            self._committers.put_nowait(lane)

    def _resume_settled(self) -> None:
        lanes, self._unsettled = self._unsettled, []
        for lane in lanes:
            self._pass_on(lane)

    def _put_away(self, lane: Lane) -> None:
        """Nothing is left of a lane but what is to be reported."""
        if not lane.lost:
            self._outcomes += lane.hand_over()
            self._count(lane, "completed", lane.size - lane.left)
        self._rooms[lane.queue].ended(lane.size, asyncio.get_running_loop().time() - lane.taken_at)
        if self._lanes.get((lane.queue, lane.stream_id)) is lane:
            del self._lanes[lane.queue, lane.stream_id]
        if (following := self._next.pop(lane, None)) is not None:
            self._pass_on(following)
        if not self._lanes:
            self._idle.set()
        self._changed()

    def _count(self, lane: Lane, what: str, count: int) -> None:
        name = f"{'inbox' if lane.queue == Queue.INBOX else 'receptor'}_{what}"
        setattr(self._counters, name, getattr(self._counters, name) + count)

    def _lose(self, lane: Lane) -> None:
        if not lane.lost:
            log.lease_lost(lane.queue, lane.stream_id)
            self._counters.leases_lost += 1
            lane.lost = True
            if lane.task is not None:
                lane.task.cancel()

    async def _call_forever(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            lane = await self._callers.get()
            lane.task = task
            self._calling.add(lane)
            try:
                with span("receptors", map(headers_of, lane.work), queue=lane.queue, messages=len(lane.work)):
                    await self._call(lane)
            except asyncio.CancelledError:
                if not lane.lost:
                    raise
                task.uncancel()
            finally:
                lane.task = None
                self._calling.discard(lane)
            self._pass_on(lane)

    async def _call(self, lane: Lane) -> None:
        """Handle messages while none of them needs a transaction."""
        while lane.work and not lane.lost and not self._stopping and lane.in_time(self._coordinator):
            work = lane.work[0]
            try:
                found = self._handling.find(work)
                if found.transactional:
                    return
                returned = await self._handling.call(found, work, threads=self._threads)
            except Unhandled as fault:
                log.unhandled(work, str(fault))
                self._fail(lane, failure(work, str(fault), verdict=Verdict.PARK))
                return
            except CallFailed as failed:
                self._judge(lane, failed)
                return
            lane.work.popleft()
            if returned or found.external:
                lane.handled = Handled(work, found.receptors[0], returned)
                return
            lane.done.append(completion(work))

    def _judge(self, lane: Lane, failed: CallFailed) -> None:
        """What becomes of the head of a lane, whose receptor raised."""
        work, receptor = lane.work[0], failed.receptor
        decision = decide(receptor.retry, receptor.on_poison, failed.error, work.attempts)
        log.receptor_failed(receptor.name, work, failed.error, decision.next.name.lower())
        if decision.next is Next.SKIP:
            lane.work.popleft()
            lane.handled = Handled(work, receptor, given_up=error_text(failed.error))
            return
        ended = failure(work, failed.error, verdict=decision.verdict, retry_seconds=decision.retry_seconds)
        self._fail(lane, ended)

    def _fail(self, lane: Lane, outcome: Outcome) -> None:
        self._count(lane, "failed", 1)
        lane.fail(outcome)

    async def _commit_forever(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            self._free += 1
            lanes = [await self._committers.get()]
            share = self._groups.pace.share(self._committers.qsize(), self._free)
            self._free -= 1
            lanes += [self._committers.get_nowait() for _ in range(min(GROUP_LIMIT - 1, share))]
            for lane in lanes:
                lane.task = task
            try:
                await self._commit(lanes)
            except asyncio.CancelledError:
                if not any(lane.lost for lane in lanes):
                    raise
                task.uncancel()
            finally:
                for lane in lanes:
                    lane.task = None
            for lane in lanes:
                self._pass_on(lane)

    async def _commit(self, lanes: Sequence[Lane]) -> None:
        """Commit what these lanes have in front of them: together, or one by one."""
        try:
            await self._groups.commit(lanes)
        except CannotCommit:
            self._groups.pace.collided()
            for lane in lanes:
                await self._commit_alone(lane)

    async def _commit_alone(self, lane: Lane) -> None:
        """One message in a transaction of its own: if that cannot be committed either, the message has failed."""
        error = None
        for _ in range(_TRIES_ALONE):
            try:
                await self._groups.commit([lane], limit=1)
                return
            except CannotCommit as fault:
                error = fault.__cause__
                if error is None or sqlstate(error) not in ("40001", "40P01"):
                    break
        receptor = lane.take_back() or self._handling.find(lane.work[0]).receptors[0]
        self._judge(lane, CallFailed(receptor, error if isinstance(error, Exception) else RuntimeError("no commit")))
