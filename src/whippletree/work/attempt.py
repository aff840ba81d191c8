"""One transaction of a group: what it does to its lanes, written down once it is committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from whippletree.claim.coordinator import HandedIn
from whippletree.dispatch.handling import Work
from whippletree.message.outcome import Outcome, Verdict
from whippletree.store.publishing import NewMessages
from whippletree.work.lane import Lane, completion, failure


@dataclass(slots=True)
class Progress:
    """What a transaction does to one lane, to be written down once it is committed."""

    lane: Lane
    taken: int = 0
    """How many of its messages have ended."""
    finished: Work | None = None
    """The last one that was completed."""
    stopped: bool = False
    """The lane ends here: its head has failed."""


@dataclass(slots=True)
class Attempt:
    """One transaction."""

    progress: list[Progress] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    new: NewMessages = field(default_factory=NewMessages)
    savepoints: bool = True
    """Whether a message can be undone alone."""
    has_savepoint: bool = False
    handled: int = 0
    handed_in: HandedIn | None = None


def completed(progress: Progress, attempt: Attempt, work: Work, new: NewMessages) -> None:
    """A message has ended well, and made these."""
    attempt.outcomes.append(completion(work))
    attempt.new.extend(new)
    progress.finished = work
    handled = progress.lane.handled
    progress.taken += handled is None or handled.work is not work


def stop(
    progress: Progress,
    attempt: Attempt,
    work: Work,
    error: BaseException | str,
    verdict: Verdict,
    retry_seconds: float | None = None,
) -> None:
    """A message has failed, and its lane ends with it."""
    attempt.outcomes.append(failure(work, error, verdict=verdict, retry_seconds=retry_seconds))
    progress.stopped = True


def write_down(attempt: Attempt) -> None:
    """The transaction is committed."""
    assert attempt.handed_in is not None
    attempt.handed_in.settle()
    for progress in attempt.progress:
        lane = progress.lane
        lane.done.clear()
        lane.handled = None
        for _ in range(progress.taken):
            lane.work.popleft()
        if progress.stopped:
            lane.left = len(lane.work)
            lane.work.clear()
