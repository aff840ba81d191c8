"""What an instance has in hand, and how reports on single pieces of work become reports on streams.

The database takes the report on a stream as a whole: finished up to a version, failed at the next, the rest given
back. Here is the one place that knows which lease a piece of work belongs to.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from uuid import UUID

import msgspec

from whippletree.message.envelope import ClaimedMessage, PerspectiveWork, Queue, ReceptorWork
from whippletree.message.ids import MessageId, StreamId
from whippletree.message.outcome import (
    Completion,
    Failure,
    MessageCompletion,
    MessageProcessingStatus,
    MessageRelease,
    Outcome,
    PerspectiveCheckpointCompletion,
    PerspectiveCheckpointFailure,
    ReceptorProcessingCompletion,
    ReceptorProcessingFailure,
    Refusal,
    Rejection,
    fault_of,
)

LEASE_LOST = "lease lost"
OUT_OF_ORDER = "out of order: an earlier message of its stream is not finished"
_LEASE = attrgetter("queue", "stream_id", "lease_token")
_COMPLETED, _PUBLISHED = MessageProcessingStatus.COMPLETED, MessageProcessingStatus.PUBLISHED

Work = ClaimedMessage | ReceptorWork | PerspectiveWork


class Run(msgspec.Struct, eq=False, gc=False):
    """The work of one stream under one lease, in order; what is at the front leaves first."""

    queue: str
    stream_id: StreamId
    lease_token: int
    messages: list[Work]
    claimed_at: float = 0.0
    """When the lease was asked for, and when it was last asked to be renewed, by this process's monotonic clock: the
    lease lasts at least its length from there."""
    renewed_at: float = 0.0


@dataclass(slots=True)
class StreamReports:
    """Reports ready for the database, at most one per run and verb."""

    completed: dict[Run, int] = field(default_factory=dict)
    failed: dict[Run, tuple[int, Failure]] = field(default_factory=dict)
    released: dict[Run, int] = field(default_factory=dict)
    renewed: dict[Run, None] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    """New messages that do not go with them."""
    in_hand: dict[Run, list[Work]] = field(default_factory=dict)
    """What each of these runs held when its report was made. By the time that a refusal is read it may hold nothing any
    more: its lease is known to be lost by then, or its messages have come again."""


class HeldWork:
    """The runs in hand, found by queue and id: an id may wait in the outbox and in the inbox at once."""

    def __init__(self) -> None:
        self._runs: defaultdict[str, dict[UUID, Run]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    def unsettled(self, queue: str | None, message_id: UUID) -> bool:
        """Whether a piece of work is in hand whose end is not accepted yet."""
        return self._of_message(message_id, queue) is not None

    def runs(self) -> list[Run]:
        """Every lease in hand, once. Safe to call from another thread."""
        return list(dict.fromkeys(run for runs in list(self._runs.values()) for run in runs.copy().values()))

    def add(self, messages: Iterable[Work], at: float = 0.0) -> list[Run]:
        """Take in claimed work; that of one stream comes together and in order. Its runs."""
        added: list[Run] = []
        for lease, work in groupby(messages, _LEASE):
            run = Run(*lease, list(work), at, at)
            runs = self._runs[run.queue]
            for message in run.messages:
                if (before := runs.setdefault(message.message_id, run)) is not run:
                    # Its lease ran out, or the message would not come again: the rest of that run is lost with it.
                    self._drop(before, before.messages)
                    runs[message.message_id] = run
            added.append(run)
        return added

    def resolve(
        self, outcomes: Iterable[Outcome], renewals: Iterable[MessageId], leases: Iterable[Run] = ()
    ) -> StreamReports:
        """Turn reports on messages into reports on streams. Changes nothing here: `settle` does, once accepted."""
        reports = StreamReports()
        finished: defaultdict[Run, set[UUID]] = defaultdict(set)
        for outcome in outcomes:
            id_ = outcome.message_id
            # Nearly every outcome is one of these, so they come first and without a detour.
            if (
                type(outcome) is MessageCompletion
                and (outcome.status is _COMPLETED or outcome.status is _PUBLISHED)
                and (run := self._runs[outcome.queue or "outbox"].get(id_))
            ):
                if len(run.messages) == 1:
                    reports.completed[run] = run.messages[0].version
                else:
                    finished[run].add(id_)
                continue
            if fault := fault_of(outcome):
                reports.rejected.append(Rejection(id_, _verb(outcome), fault, queue_of(outcome)))
                continue
            if isinstance(outcome, MessageCompletion) and outcome.status == 0:
                outcome = MessageRelease(outcome.message_id, outcome.queue)
            run = self._find(outcome)
            if run is None:
                reports.rejected.append(Rejection(id_, _verb(outcome), LEASE_LOST, queue_of(outcome)))
            elif isinstance(outcome, PerspectiveCheckpointCompletion):
                _move_checkpoint(run, outcome, reports)
            elif isinstance(outcome, Completion):
                finished[run].add(id_)
            elif isinstance(outcome, Failure):
                _keep_first_failure(run, id_, outcome, reports)
            else:
                version = _version(run, id_)
                reports.released[run] = min(version, reports.released.get(run, version))
        for run, ids in finished.items():
            _complete(run, ids, reports)
        for run in list(reports.failed):
            _fail(run, reports)
        for message_id in renewals:
            if (run := self._of_message(message_id)) is not None:
                reports.renewed[run] = None
            else:
                reports.rejected.append(Rejection(message_id, "renew", LEASE_LOST))
        for run in leases:
            # What has ended in the meantime needs no renewal.
            if run.messages and run not in reports.completed.keys() | reports.failed.keys() | reports.released.keys():
                reports.renewed[run] = None
        runs = (*reports.completed, *reports.failed, *reports.released, *reports.renewed)
        reports.in_hand.update((run, run.messages) for run in runs)
        return reports

    def settle(self, reports: StreamReports, lost: Iterable[Run], at: float = 0.0) -> None:
        """Let go of what the database has accepted, and of every run whose lease is lost."""
        for run in reports.renewed:
            run.renewed_at = at
        self.forget(lost)
        for run, through in reports.completed.items():
            if run.messages and run.messages[-1].version <= through:
                self._drop(run, run.messages)
                continue
            self._drop(run, [message for message in run.messages if message.version <= through])
            run.messages = [_moved(message, through) for message in run.messages]
        for run in reports.failed:
            self._drop(run, run.messages)
        for run, version in reports.released.items():
            self._drop(run, [message for message in run.messages if message.version >= version])

    def in_time(self, work: Work, life: float) -> bool:
        """Whether a piece of work is in hand under a lease that lasts, by this process's own clock."""
        run = self._run(work.queue, work.message_id)
        return run is not None and run.lease_token == work.lease_token and time.monotonic() - run.renewed_at < life

    def holds(self, work: Work) -> bool:
        """Whether a piece of work is still in hand, under the lease that it came with."""
        run = self._run(work.queue, work.message_id)
        return run is not None and run.lease_token == work.lease_token

    def forget(self, runs: Iterable[Run]) -> None:
        """Let go of runs, whatever the database says of them."""
        for run in runs:
            self._drop(run, run.messages)

    def _find(self, outcome: Outcome) -> Run | None:
        if isinstance(outcome, PerspectiveCheckpointCompletion | PerspectiveCheckpointFailure):
            run = self._run(f"perspective/{outcome.perspective_name}", outcome.stream_id)
            ours = run is None or outcome.lease_token in (None, run.lease_token)
            return run if ours else None
        if isinstance(outcome, ReceptorProcessingCompletion | ReceptorProcessingFailure):
            return self._run(f"receptor/{outcome.receptor_name}", outcome.event_id)
        return self._of_message(outcome.message_id, outcome.queue)

    def _of_message(self, message_id: UUID, queue: Queue | str | None = None) -> Run | None:
        if queue is not None:
            return self._run(queue, message_id)
        return self._run("outbox", message_id) or self._run("inbox", message_id)

    def _run(self, queue: str, message_id: UUID) -> Run | None:
        return self._runs[queue].get(message_id)

    def _drop(self, run: Run, gone: Sequence[Work]) -> None:
        if not gone:
            return
        runs = self._runs[run.queue]
        for message in gone:
            id_ = message.message_id
            if runs.get(id_) is run:
                del runs[id_]
        if gone is run.messages:
            run.messages = []
            return
        run.messages = run.messages[len(gone) :] if gone[:1] == run.messages[:1] else run.messages[: -len(gone)]


def rejections_of(messages: Iterable[Work], verb: str, reason: str = LEASE_LOST) -> list[Rejection]:
    """Every message of a run that is not ours any more."""
    return [Rejection(message.message_id, verb, reason, message.queue) for message in messages]


def queue_of(outcome: Outcome) -> str | None:
    """The queue that an outcome names."""
    if isinstance(outcome, PerspectiveCheckpointCompletion | PerspectiveCheckpointFailure):
        return f"perspective/{outcome.perspective_name}"
    if isinstance(outcome, ReceptorProcessingCompletion | ReceptorProcessingFailure):
        return f"receptor/{outcome.receptor_name}"
    return outcome.queue


def _complete(run: Run, ids: set[UUID], reports: StreamReports) -> None:
    """Only an unbroken row of messages from the front can be finished."""
    if len(ids) == len(run.messages):
        reports.completed[run] = run.messages[-1].version
        return
    for message in run.messages:
        if message.message_id not in ids:
            break
        ids.discard(message.message_id)
        reports.completed[run] = message.version
    reports.rejected.extend(Rejection(id_, "complete", OUT_OF_ORDER) for id_ in ids)


def _move_checkpoint(run: Run, completion: PerspectiveCheckpointCompletion, reports: StreamReports) -> None:
    (work,) = run.messages
    if isinstance(work, PerspectiveWork) and work.checkpoint < completion.version <= work.version:
        reports.completed[run] = max(completion.version, reports.completed.get(run, 0))
    else:
        reports.rejected.append(Rejection(completion.stream_id, "complete", OUT_OF_ORDER))


def _keep_first_failure(run: Run, id_: UUID, failure: Failure, reports: StreamReports) -> None:
    """A run ends at its first failure; a later one was not to be tried."""
    both = [(_version(run, id_), failure)]
    if run in reports.failed:
        both.append(reports.failed[run])
    reports.failed[run], *late = sorted(both, key=lambda failed: failed[0])
    reports.rejected.extend(Rejection(failed.message_id, "fail", OUT_OF_ORDER) for _, failed in late)


def _fail(run: Run, reports: StreamReports) -> None:
    version, failure = reports.failed[run]
    done = reports.completed.get(run, 0)
    if isinstance(work := run.messages[0], PerspectiveWork):
        # A perspective fails on the event after its checkpoint.
        reports.failed[run] = (max(done, work.checkpoint) + 1, failure)
    elif version != next((message.version for message in run.messages if message.version > done), None):
        del reports.failed[run]
        reports.rejected.append(Rejection(failure.message_id, "fail", OUT_OF_ORDER))
        return
    # A failure gives back the rest of its run by itself.
    reports.released.pop(run, None)


def _version(run: Run, id_: UUID) -> int:
    """The version from which on a report on a piece of work holds."""
    work = next(message for message in run.messages if message.message_id == id_)
    return work.checkpoint + 1 if isinstance(work, PerspectiveWork) else work.version


def _moved(work: Work, through: int) -> Work:
    """A perspective's stream that is done in part goes on from there."""
    if isinstance(work, PerspectiveWork) and work.checkpoint < through:
        return msgspec.structs.replace(work, checkpoint=through)
    return work


def _verb(outcome: Outcome) -> str:
    if isinstance(outcome, MessageRelease):
        return "release"
    return "complete" if isinstance(outcome, Completion) else "fail"
