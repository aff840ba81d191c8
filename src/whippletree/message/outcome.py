"""How one piece of work ended. Outcomes are values, handed in with the next work report."""

from __future__ import annotations

from enum import IntFlag, StrEnum
from uuid import UUID

import msgspec

from whippletree.errors import InvalidSetting, LeaseLost
from whippletree.message.envelope import Queue, id_fault
from whippletree.message.ids import EventId, MessageId, StreamId

_LONGEST_RETRY = 999_999_999


class MessageProcessingStatus(IntFlag):
    """What a message has been through."""

    STORED = 1
    PUBLISHED = 2
    COMPLETED = 4
    FAILED = 8


class ReceptorProcessingStatus(StrEnum):
    """How a receptor stands to an event. Mirrored by the view wh_receptor_processing."""

    PENDING = "Pending"
    PROCESSING = "Processing"
    COMPLETED = "Completed"
    FAILED = "Failed"
    SKIPPED = "Skipped"


class PerspectiveProcessingStatus(StrEnum):
    """How a perspective stands to a stream. Mirrored by the view wh_perspective_checkpoints."""

    PENDING = "Pending"
    PROCESSING = "Processing"
    COMPLETED = "Completed"
    FAILED = "Failed"


class Verdict(StrEnum):
    """What is to happen to a message that failed."""

    RETRY = "retry"
    """Try again, until its attempts are used up; then park it."""
    PARK = "park"
    """Hold its stream at it until an operator redrives or skips it."""
    POSTPONE = "postpone"
    """Try again without counting the attempt: the message is not to blame."""


_VERDICTS = tuple(Verdict)
_FAILED = MessageProcessingStatus.FAILED


class MessageCompletion(msgspec.Struct, frozen=True, gc=False):
    """The message is done. A status of 0 gives it back; one that ends nothing is refused when it is reported."""

    message_id: MessageId
    status: MessageProcessingStatus = MessageProcessingStatus.COMPLETED
    queue: Queue | None = None
    """Needed only when the same id is in hand from both queues."""


class MessageFailure(msgspec.Struct, frozen=True):
    """The message failed; the rest of its stream's run goes back with it."""

    message_id: MessageId
    error: str
    status: MessageProcessingStatus = MessageProcessingStatus.FAILED
    stack_trace: str | None = None
    """Kept with the error, below it."""
    retry_seconds: float | None = None
    verdict: Verdict = Verdict.RETRY
    queue: Queue | None = None

    def __post_init__(self) -> None:
        if self.status is not _FAILED and not _fails(self.status):
            raise InvalidSetting(f"status {self.status} is not that of a failure; leave it out, or report a completion")
        _require_failure(self)


class MessageRelease(msgspec.Struct, frozen=True):
    """The message, and what follows it in its run, goes back untried.

    A perspective's work goes back as a whole, under its stream's id and with its queue.
    """

    message_id: MessageId | StreamId
    queue: Queue | str | None = None


class ReceptorProcessingCompletion(msgspec.Struct, frozen=True):
    """A receptor has handled an event."""

    event_id: EventId
    receptor_name: str
    status: ReceptorProcessingStatus = ReceptorProcessingStatus.COMPLETED

    def __post_init__(self) -> None:
        _require_status(self.status, ReceptorProcessingStatus.COMPLETED)

    @property
    def message_id(self) -> UUID:
        return self.event_id


class ReceptorProcessingFailure(msgspec.Struct, frozen=True):
    """A receptor failed on an event; what follows in that stream waits for this receptor, and for no other."""

    event_id: EventId
    receptor_name: str
    error: str
    status: ReceptorProcessingStatus = ReceptorProcessingStatus.FAILED
    retry_seconds: float | None = None
    verdict: Verdict = Verdict.RETRY

    def __post_init__(self) -> None:
        _require_status(self.status, ReceptorProcessingStatus.FAILED)
        _require_failure(self)

    @property
    def message_id(self) -> UUID:
        return self.event_id


class PerspectiveCheckpointCompletion(msgspec.Struct, frozen=True):
    """A perspective has applied a stream's events up to a version."""

    stream_id: StreamId
    perspective_name: str
    version: int
    status: PerspectiveProcessingStatus = PerspectiveProcessingStatus.COMPLETED
    lease_token: int | None = None
    """Counts only under this lease; without it, under whichever lease is in hand."""

    def __post_init__(self) -> None:
        _require_status(self.status, PerspectiveProcessingStatus.COMPLETED)

    @property
    def message_id(self) -> UUID:
        return self.stream_id


class PerspectiveCheckpointFailure(msgspec.Struct, frozen=True):
    """A perspective failed on the next event of a stream; only this stream of this perspective waits."""

    stream_id: StreamId
    perspective_name: str
    error: str
    status: PerspectiveProcessingStatus = PerspectiveProcessingStatus.FAILED
    retry_seconds: float | None = None
    verdict: Verdict = Verdict.RETRY
    lease_token: int | None = None

    def __post_init__(self) -> None:
        _require_status(self.status, PerspectiveProcessingStatus.FAILED)
        _require_failure(self)

    @property
    def message_id(self) -> UUID:
        return self.stream_id


Completion = MessageCompletion | ReceptorProcessingCompletion | PerspectiveCheckpointCompletion
Failure = MessageFailure | ReceptorProcessingFailure | PerspectiveCheckpointFailure
Outcome = Completion | Failure | MessageRelease


def fault_of(outcome: Outcome) -> str | None:
    """Why an outcome cannot be handed in, in words that say what to mend; None when it can."""
    if fault := id_fault(outcome.message_id):
        return f"its id {fault}"
    if isinstance(outcome, MessageCompletion) and not _ends(outcome.status):
        return (
            f"status {outcome.status} ends nothing: use MessageProcessingStatus.PUBLISHED or COMPLETED, or "
            "MessageRelease to give the message back"
        )
    return None


class Rejection(msgspec.Struct, frozen=True):
    """A report that changed nothing: the lease was no longer the reporter's, or it could not be taken as it was."""

    message_id: UUID
    verb: str
    reason: str
    queue: str | None = None
    """Where the work came from, where that is known: a stream may be in hand for several perspectives."""

    @property
    def error(self) -> LeaseLost:
        """The same as an error, for whoever would rather raise it."""
        return LeaseLost(f"{self.verb} of {self.message_id} changed nothing: {self.reason}")


class Refusal(msgspec.Struct, frozen=True):
    """A new message that was not stored: a duplicate, a conflict, or one that cannot be stored."""

    message_id: MessageId | None
    outcome: str
    reason: str | None


def _require_status(status: StrEnum, ending: StrEnum) -> None:
    if status is not ending and status != ending:
        kind, other = ("completion", "failure") if ending == "Completed" else ("failure", "completion")
        raise InvalidSetting(f"status {status} is not that of a {kind}; leave it out, or report a {other}")


def _ends(status: object) -> bool:
    """Whether a message is finished, or with 0 given back: the database sees only how far a stream is done."""
    return isinstance(status, int) and (status == 0 or 2 <= status <= 7)


def _fails(status: object) -> bool:
    """Whether a message that has been through this has failed: it may have been published, but it is not completed."""
    return isinstance(status, int) and 0 <= status <= 15 and not status & MessageProcessingStatus.COMPLETED


def _require_failure(failure: Failure) -> None:
    # The database would refuse the whole batch for one that it cannot read, or take an unknown verdict for none.
    if not isinstance(failure.error, str):
        raise InvalidSetting(f"error is of type {type(failure.error).__name__}; give a text, such as str(error)")
    wait = failure.retry_seconds
    if wait is not None and not (isinstance(wait, int | float) and abs(wait) <= _LONGEST_RETRY):
        raise InvalidSetting(f"retry_seconds is {wait!r}, which is no time to wait; give a number of seconds")
    if failure.verdict not in _VERDICTS:
        raise InvalidSetting(f"verdict is {failure.verdict!r}; give {', '.join(_VERDICTS)}")
