"""Works off perspectives: folds the streams that the loop claimed, and commits rows and checkpoints together.

It runs in the loop of its instance beside other workers, or alone with a loop of its own (`run`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

import msgspec

from whippletree.claim.batch import WorkBatch
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.wake import WakeListener
from whippletree.complete.strategy import BatchedCompletionStrategy, CompletionStrategy, PerspectiveOutcome
from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.folding import Folded
from whippletree.dispatch.perspective_runner import PerspectiveRunner
from whippletree.errors import StoreError
from whippletree.message.envelope import PerspectiveWork, worked_as
from whippletree.message.outcome import (
    MessageRelease,
    Outcome,
    PerspectiveCheckpointCompletion,
    PerspectiveCheckpointFailure,
    Rejection,
)
from whippletree.telemetry import Counters, span
from whippletree.work import log
from whippletree.work.callbacks import call_all
from whippletree.work.loop import LoopSettings, WorkLoop
from whippletree.work.perspective_options import PerspectiveWorkerOptions
from whippletree.work.readiness import DatabaseReadiness
from whippletree.work.unworked import name_the_unworked

EVENTS_AT_ONCE = 2_000
"""About so many events are read, folded and committed together."""
_WARN_AFTER = 10
_PAUSE, _LONGEST_PAUSE = 0.05, 5.0

_Key: TypeAlias = tuple[str, UUID]
"""Queue and stream."""


class PerspectiveWorker:
    """A `Worker` for perspectives. Whoever wants to know that an event is applied waits for that event: two empty polls
    in a row do not mean that nothing is left."""

    def __init__(
        self,
        runner: PerspectiveRunner,
        coordinator: WorkCoordinator,
        options: PerspectiveWorkerOptions | None = None,
        *,
        completion_strategy: CompletionStrategy | None = None,
        readiness: DatabaseReadiness | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.options = options or PerspectiveWorkerOptions()
        self.on_work_processing_started: list[Callable[[], None]] = []
        """Called when work appears after an idle time."""
        self.on_work_processing_idle: list[Callable[[], None]] = []
        """Called after `idle_threshold_polls` polls that found nothing."""
        self.is_idle = True
        self.consecutive_empty_polls = 0
        self.consecutive_database_not_ready_checks = 0
        self._counters = counters or Counters()
        self._runner = runner
        self._coordinator = coordinator
        self._strategy = completion_strategy or BatchedCompletionStrategy()
        self._readiness = readiness
        self._changed: Callable[[], None] = lambda: None
        self._waiting: deque[PerspectiveWork] = deque()
        self._in_hand: dict[str, int] = dict.fromkeys((p.queue for p in runner.folder.perspectives.values()), 0)
        self._unfinished: dict[_Key, PerspectiveWork] = {}
        self._folded: dict[_Key, Folded] = {}
        self._outcomes: list[Outcome] = []
        self._task: asyncio.Task[None] | None = None
        self._look_round: asyncio.Task[None] | None = None
        self._loop: WorkLoop | None = None
        self._stopping = False

    async def run(self, wake: WakeListener | None = None) -> None:
        """Work in a loop of its own until `end`: at once, then when work arrives or the polling interval is over."""
        instance = self._coordinator.instance
        log.perspective_worker_starting(instance.instance_id, instance.service_name, instance.host_name)
        settings = LoopSettings(
            polling_interval=self.options.polling_interval_milliseconds / 1000, debug_mode=self.options.debug_mode
        )
        self._loop = WorkLoop(self._coordinator, [self], settings, wake=wake, ready=self.check_database)
        await self._loop.run()

    def end(self, grace: float = 30) -> None:
        """Ask `run` to return: begun work is finished, the rest is given back."""
        if self._loop is not None:
            self._loop.stop(grace)

    async def check_database(self) -> bool:
        """Whether the database is ready; counts, and says so when it is not for long."""
        if self._readiness is None or await self._readiness.is_ready():
            self.consecutive_database_not_ready_checks = 0
            return True
        self.consecutive_database_not_ready_checks += 1
        count = self.consecutive_database_not_ready_checks
        log.perspectives_not_ready(count)
        if count > _WARN_AFTER:
            log.perspectives_paused(count)
        return False

    def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def wants(self, coming: Mapping[str, int]) -> Mapping[str, int]:
        if self._stopping:
            return dict.fromkeys(self._in_hand, 0)
        most = self.options.max_checkpoints
        return {queue: max(0, most - count - coming.get(queue, 0)) for queue, count in self._in_hand.items()}

    def take(self, batch: WorkBatch) -> None:
        if self._look_round is None:
            # Now that this instance is known to the others, with what it works.
            looking = name_the_unworked(self._runner)
            self._look_round = asyncio.create_task(looking, name="whippletree missing perspectives")
        mine = [work for work in batch.claimed_perspective_work if worked_as(work.queue) in self._in_hand]
        if mine:
            self.consecutive_empty_polls = 0
            if self.is_idle:
                self.is_idle = False
                call_all(self.on_work_processing_started)
            self._counters.perspective_received += len(mine)
            for work in mine:
                self._in_hand[worked_as(work.queue)] += 1
            self._waiting.extend(mine)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._work(), name="whippletree perspectives")
        elif not any(self._in_hand.values()):
            self.consecutive_empty_polls += 1
            if not self.is_idle and self.consecutive_empty_polls >= self.options.idle_threshold_polls:
                self.is_idle = True
                call_all(self.on_work_processing_idle)
        self._counters.perspective_empty_polls = self.consecutive_empty_polls
        self._counters.perspective_idle = int(self.is_idle)

    def outcomes(self) -> Sequence[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def lost(self, rejections: Sequence[Rejection]) -> None:
        """What is waiting is dropped; what is being folded is refused when it is committed."""
        gone = [work for work in self._waiting if not self._holds(work)]
        for work in gone:
            self._waiting.remove(work)
        self._let_go(gone)

    async def stop(self, grace: float) -> None:
        self._stopping = True
        if self._look_round is not None:
            await self._look_round
        if self._task is not None:
            _, pending = await asyncio.wait([self._task], timeout=grace)
            if pending:
                self._task.cancel()
                await asyncio.wait([self._task])
        rest, self._waiting = list(self._waiting), deque()
        self._outcomes += [MessageRelease(work.stream_id, work.queue) for work in rest]
        self._let_go(rest)

    async def report_perspective_completion(self, *completions: PerspectiveCheckpointCompletion) -> None:
        """What a completion strategy calls: commits the rows of these streams with their checkpoints."""
        await self._commit(completions)

    async def report_perspective_failure(self, *failures: PerspectiveCheckpointFailure) -> None:
        await self._commit(failures)

    async def _work(self) -> None:
        pause = _PAUSE
        while not self._stopping and (chunk := self._next()):
            self._unfinished = {_key(work): work for work in chunk}
            try:
                await self._process(chunk)
            except StoreError as error:
                log.perspectives_wait(error)
                self._again()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            except asyncio.CancelledError:
                self._again()
                raise
            except Exception as error:
                log.perspective_raised(chunk[0].perspective_name, len(chunk))
                self._give_up(error)
            pause = _PAUSE
            self._changed()

    def _next(self) -> list[PerspectiveWork]:
        """Streams of one perspective with about as many events as are folded at once."""
        chunk: list[PerspectiveWork] = []
        events = 0
        while self._waiting and events < EVENTS_AT_ONCE:
            work = self._waiting[0]
            if chunk and work.queue != chunk[0].queue:
                break
            self._waiting.popleft()
            # A lease that ran out may have been won again: then the work is there twice, and only the later one counts.
            if self._holds(work):
                chunk.append(work)
                events += min(self.options.perspective_batch_size, work.version - work.checkpoint)
            else:
                self._let_go([work])
        return chunk

    async def _process(self, chunk: Sequence[PerspectiveWork]) -> None:
        began = time.time_ns()
        folded = await self._runner.fold(chunk, self.options.perspective_batch_size)
        self._folded = {_key(one.work): one for one in folded}
        headers = (one.headers for one in folded)
        # Which traces to follow is known only now.
        with span("perspectives", headers, since=began, perspective=chunk[0].perspective_name, streams=len(chunk)):
            await self._report(folded)

    async def _report(self, folded: Sequence[Folded]) -> None:
        for one in folded:
            if one.failed is not None:
                log.perspective_failed(one.work.perspective_name, one.work.stream_id, one.failed)
            # A failure takes along what was folded before it.
            outcome = one.outcomes()[-1]
            if isinstance(outcome, PerspectiveCheckpointFailure):
                await self._strategy.report_failure(outcome, self)
            elif isinstance(outcome, PerspectiveCheckpointCompletion):
                await self._strategy.report_completion(outcome, self)
        pending: tuple[PerspectiveOutcome, ...] = (
            *self._strategy.get_pending_completions(),
            *self._strategy.get_pending_failures(),
        )
        try:
            await self._commit(pending)
        finally:
            # Committed, or about to be folded again: in either case these are not to be reported any more.
            self._strategy.clear_pending(pending)

    async def _commit(self, outcomes: Iterable[PerspectiveOutcome]) -> None:
        keys = [(f"perspective/{outcome.perspective_name}", outcome.stream_id) for outcome in outcomes]
        folded = [self._folded.pop(key) for key in keys if key in self._folded]
        if not folded:
            return
        refused = await self._runner.commit(folded)
        for one in folded:
            work = self._unfinished.pop(_key(one.work))
            if one in refused:
                # Its lease is gone, or its rows were swapped and it is to be folded again.
                again = self._holds(work)
            else:
                self._counters.perspective_completed += one.failed is None
                self._counters.perspective_failed += one.failed is not None
                again = one.failed is None and one.through < work.version
                work = msgspec.structs.replace(work, checkpoint=one.through)
            if again:
                self._waiting.appendleft(work)
            else:
                self._let_go([work])

    def _again(self) -> None:
        """What was not committed is folded once more; `_next` drops what is no longer ours."""
        self._waiting.extendleft(self._unfinished.values())

    def _give_up(self, error: Exception) -> None:
        left = list(self._unfinished.values())
        self._counters.perspective_failed += len(left)
        for work in left:
            folded = Folded(work, work.checkpoint, work.version)
            retry = self._runner.folder.perspectives[work.registered_name].retry
            folded.fail(work.checkpoint + 1, error_text(error), error, retry)
            self._outcomes += folded.outcomes()
        self._let_go(left)

    def _holds(self, work: PerspectiveWork) -> bool:
        return self._coordinator.held.holds(work)

    def _let_go(self, gone: Iterable[PerspectiveWork]) -> None:
        for work in gone:
            self._in_hand[worked_as(work.queue)] -= 1


def _key(work: PerspectiveWork) -> _Key:
    return work.queue, work.stream_id
