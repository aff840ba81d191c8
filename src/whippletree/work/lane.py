"""What is left of one stream's run, in order, while an instance works on it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from whippletree.claim.coordinator import WorkCoordinator
from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.handling import Work
from whippletree.dispatch.receptor import Receptor
from whippletree.message.envelope import ClaimedMessage, Queue
from whippletree.message.ids import MessageId, StreamId
from whippletree.message.outcome import (
    Completion,
    Failure,
    MessageCompletion,
    MessageFailure,
    MessageProcessingStatus,
    MessageRelease,
    Outcome,
    ReceptorProcessingCompletion,
    ReceptorProcessingFailure,
    Verdict,
)

_STREAM = attrgetter("queue", "stream_id")
# An enum is slow to look up, and every message ends so.
_COMPLETED, _INBOX = MessageProcessingStatus.COMPLETED, Queue.INBOX


@dataclass(frozen=True, slots=True)
class Handled:
    """A message that is handled and waits for its commit, with the messages that it made."""

    work: Work
    receptor: Receptor
    returned: list[object] = field(default_factory=list)
    given_up: str | None = None
    """Why it is skipped, when it is."""


@dataclass(slots=True, eq=False)
class Lane:
    """One stream's messages under one lease. At most one task works on it at a time."""

    queue: str
    stream_id: StreamId
    work: deque[Work]
    leased_at: float
    """When it was asked for, by this process's monotonic clock."""
    taken_at: float = field(default_factory=time.monotonic)
    done: list[Outcome] = field(default_factory=list)
    """What has ended and was not handed over yet."""
    reported: UUID | None = None
    """The last message whose end the loop has taken over, to report it."""
    handled: Handled | None = None
    """Handled, and waiting for its commit; it is no longer among `work`."""
    lost: bool = False
    """The lease is gone: nothing of it may be committed any more."""
    task: asyncio.Task[None] | None = None
    """Who works on it."""
    size: int = 0
    """How many messages it began with."""
    left: int = 0
    """How many of them failed or were given back."""

    def __post_init__(self) -> None:
        self.size = len(self.work)

    def hand_over(self) -> list[Outcome]:
        """What has ended, for whoever reports it."""
        done, self.done = self.done, []
        if done:
            self.reported = done[-1].message_id
        return done

    def fail(self, outcome: Outcome) -> None:
        """The head has failed, which gives back what follows in the stream."""
        self.done.append(outcome)
        self.left = len(self.work) + (self.handled is not None)
        self.handled = None
        self.work.clear()

    def holds(self, message_ids: Collection[UUID]) -> bool:
        """Whether one of these is among what has not been committed."""
        pieces = [*self.work, self.handled.work] if self.handled else self.work
        return any(piece.message_id in message_ids for piece in pieces) or any(
            outcome.message_id in message_ids for outcome in self.done
        )

    def in_time(self, coordinator: WorkCoordinator) -> bool:
        """Whether the next message may be begun outside of a transaction, where nobody else checks the lease."""
        life = coordinator.settings.lease_seconds
        # Nearly every lane is young, and the first question is the quick one.
        return time.monotonic() - self.leased_at < life / 2 or coordinator.held.in_time(self.work[0], life)

    def take_back(self) -> Receptor | None:
        """What waits for its commit is to be handled again; whose it was."""
        if self.handled is None:
            return None
        handled, self.handled = self.handled, None
        self.work.appendleft(handled.work)
        return handled.receptor

    def give_back(self) -> None:
        """Release what is left, untried."""
        left = self.handled.work if self.handled else self.work[0] if self.work else None
        if left is not None:
            self.done.append(MessageRelease(MessageId(left.message_id), left.queue))
            self.left = len(self.work) + (self.handled is not None)
        self.handled = None
        self.work.clear()


def lanes_of(pieces: Iterable[Work], leased_at: float) -> Iterator[Lane]:
    """Claimed work by stream; what belongs together comes together."""
    for (queue, stream_id), run in groupby(pieces, _STREAM):
        yield Lane(queue, stream_id, deque(run), leased_at)


def completion(work: Work) -> Completion:
    if isinstance(work, ClaimedMessage):
        return MessageCompletion(work.message_id, _COMPLETED, _INBOX)
    return ReceptorProcessingCompletion(work.event_id, work.receptor_name)


def failure(
    work: Work, error: BaseException | str, *, verdict: Verdict = Verdict.RETRY, retry_seconds: float | None = None
) -> Failure:
    text = error if isinstance(error, str) else error_text(error)
    if isinstance(work, ClaimedMessage):
        return MessageFailure(work.message_id, text, retry_seconds=retry_seconds, verdict=verdict, queue=Queue.INBOX)
    return ReceptorProcessingFailure(
        work.event_id, work.receptor_name, text, retry_seconds=retry_seconds, verdict=verdict
    )
