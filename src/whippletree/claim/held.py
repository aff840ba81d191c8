"""What an instance has in hand, and how reports on single messages become reports on streams.

The database takes the report on a stream as a whole: finished up to a version, failed at the next, the rest given
back. Here is the one place that knows which lease a message id belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from whippletree.message.envelope import ClaimedMessage
from whippletree.message.ids import MessageId, StreamId
from whippletree.message.outcome import MessageCompletion, MessageFailure, Outcome, Rejection

LEASE_LOST = "lease lost"
OUT_OF_ORDER = "out of order: an earlier message of its stream is not finished"


@dataclass(slots=True, eq=False)
class Run:
    """The messages of one stream under one lease, in order; those at the front leave first."""

    queue: str
    stream_id: StreamId
    lease_token: int
    messages: list[ClaimedMessage]


@dataclass(slots=True)
class StreamReports:
    """Reports ready for the database, at most one per run and verb."""

    completed: dict[Run, int] = field(default_factory=dict)
    failed: dict[Run, tuple[int, MessageFailure]] = field(default_factory=dict)
    released: dict[Run, int] = field(default_factory=dict)
    renewed: dict[Run, None] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)


class HeldWork:
    """The runs in hand, found by message id."""

    def __init__(self) -> None:
        self._runs: dict[MessageId, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, messages: Iterable[ClaimedMessage]) -> None:
        """Take in claimed messages; those of one stream come together and in order."""
        run: Run | None = None
        for message in messages:
            if run is None or run.stream_id != message.stream_id or run.lease_token != message.lease_token:
                run = Run(message.queue, message.stream_id, message.lease_token, [])
            run.messages.append(message)
            self._runs[message.message_id] = run

    def resolve(self, outcomes: Iterable[Outcome], renewals: Iterable[MessageId]) -> StreamReports:
        """Turn reports on messages into reports on streams. Changes nothing here: `settle` does, once accepted."""
        reports = StreamReports()
        finished: dict[Run, set[MessageId]] = {}
        for outcome in outcomes:
            run = self._runs.get(outcome.message_id)
            if run is None:
                reports.rejected.append(Rejection(outcome.message_id, _verb(outcome), LEASE_LOST))
            elif isinstance(outcome, MessageCompletion):
                finished.setdefault(run, set()).add(outcome.message_id)
            elif isinstance(outcome, MessageFailure):
                reports.failed[run] = (_version(run, outcome.message_id), outcome)
            else:
                version = _version(run, outcome.message_id)
                reports.released[run] = min(version, reports.released.get(run, version))
        for run, ids in finished.items():
            _complete(run, ids, reports)
        for run in list(reports.failed):
            _fail(run, reports)
        for message_id in renewals:
            if (run := self._runs.get(message_id)) is not None:
                reports.renewed[run] = None
            else:
                reports.rejected.append(Rejection(message_id, "renew", LEASE_LOST))
        return reports

    def settle(self, reports: StreamReports, lost: Iterable[Run]) -> None:
        """Let go of what the database has accepted, and of every run whose lease is lost."""
        for run in lost:
            self._drop(run, run.messages)
        for run, through in reports.completed.items():
            self._drop(run, [message for message in run.messages if message.version <= through])
        for run in reports.failed:
            self._drop(run, run.messages)
        for run, version in reports.released.items():
            self._drop(run, [message for message in run.messages if message.version >= version])

    def _drop(self, run: Run, gone: list[ClaimedMessage]) -> None:
        for message in gone:
            if self._runs.get(message.message_id) is run:
                del self._runs[message.message_id]
        run.messages = run.messages[len(gone) :] if gone[:1] == run.messages[:1] else run.messages[: -len(gone)]


def _complete(run: Run, ids: set[MessageId], reports: StreamReports) -> None:
    """Only an unbroken row of messages from the front can be finished."""
    for message in run.messages:
        if message.message_id not in ids:
            break
        ids.discard(message.message_id)
        reports.completed[run] = message.version
    reports.rejected.extend(Rejection(message_id, "complete", OUT_OF_ORDER) for message_id in ids)


def _fail(run: Run, reports: StreamReports) -> None:
    version, failure = reports.failed[run]
    if version != reports.completed.get(run, run.messages[0].version - 1) + 1:
        del reports.failed[run]
        reports.rejected.append(Rejection(failure.message_id, "fail", OUT_OF_ORDER))
    else:
        # A failure gives back the rest of its run by itself.
        reports.released.pop(run, None)


def _version(run: Run, message_id: MessageId) -> int:
    return next(message.version for message in run.messages if message.message_id == message_id)


def _verb(outcome: Outcome) -> str:
    if isinstance(outcome, MessageCompletion):
        return "complete"
    return "fail" if isinstance(outcome, MessageFailure) else "release"
