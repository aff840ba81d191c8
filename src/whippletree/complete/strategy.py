"""When perspectives' outcomes are reported, and with that how many streams share a transaction.

A perspective's rows commit together with its checkpoint. To report an outcome is therefore to commit what was folded:
until then nobody sees the rows, and a crash undoes them. A strategy that reports at once makes every stream a
transaction of its own; one that collects makes a transaction of all that it has collected.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from whippletree.message.outcome import PerspectiveCheckpointCompletion, PerspectiveCheckpointFailure

PerspectiveOutcome = PerspectiveCheckpointCompletion | PerspectiveCheckpointFailure


class PerspectiveReports(Protocol):
    """Takes outcomes out of band: the worker, which commits the rows along with them, or a bare coordinator."""

    async def report_perspective_completion(self, *completions: PerspectiveCheckpointCompletion) -> object:
        """Commit these, in one transaction."""

    async def report_perspective_failure(self, *failures: PerspectiveCheckpointFailure) -> object:
        """Commit these, in one transaction; a stream's events before the bad one are kept."""


class CompletionStrategy(Protocol):
    """Told of every outcome. What is pending at the end of a batch the worker commits in one transaction."""

    async def report_completion(
        self, completion: PerspectiveCheckpointCompletion, coordinator: PerspectiveReports
    ) -> None:
        """A stream has been folded as far as it was handed out."""

    async def report_failure(self, failure: PerspectiveCheckpointFailure, coordinator: PerspectiveReports) -> None:
        """A stream has been folded up to an event that it failed on."""

    def get_pending_completions(self) -> tuple[PerspectiveCheckpointCompletion, ...]:
        """Collected, and not reported yet."""

    def get_pending_failures(self) -> tuple[PerspectiveCheckpointFailure, ...]:
        """Collected, and not reported yet."""

    def clear_pending(self, reported: Collection[PerspectiveOutcome]) -> None:
        """Forget those, and only those: others may have come while they were being reported."""


class BatchedCompletionStrategy:
    """All streams of a batch share a transaction: the fewest commits. The default."""

    def __init__(self) -> None:
        self._completions: list[PerspectiveCheckpointCompletion] = []
        self._failures: list[PerspectiveCheckpointFailure] = []

    async def report_completion(
        self, completion: PerspectiveCheckpointCompletion, coordinator: PerspectiveReports
    ) -> None:
        self._completions.append(completion)

    async def report_failure(self, failure: PerspectiveCheckpointFailure, coordinator: PerspectiveReports) -> None:
        self._failures.append(failure)

    def get_pending_completions(self) -> tuple[PerspectiveCheckpointCompletion, ...]:
        return tuple(self._completions)

    def get_pending_failures(self) -> tuple[PerspectiveCheckpointFailure, ...]:
        return tuple(self._failures)

    def clear_pending(self, reported: Collection[PerspectiveOutcome]) -> None:
        done = set(map(id, reported))
        self._completions = [completion for completion in self._completions if id(completion) not in done]
        self._failures = [failure for failure in self._failures if id(failure) not in done]


class InstantCompletionStrategy:
    """Every stream is a transaction of its own, seen by readers at once, before the next one is begun."""

    async def report_completion(
        self, completion: PerspectiveCheckpointCompletion, coordinator: PerspectiveReports
    ) -> None:
        await coordinator.report_perspective_completion(completion)

    async def report_failure(self, failure: PerspectiveCheckpointFailure, coordinator: PerspectiveReports) -> None:
        await coordinator.report_perspective_failure(failure)

    def get_pending_completions(self) -> tuple[PerspectiveCheckpointCompletion, ...]:
        return ()

    def get_pending_failures(self) -> tuple[PerspectiveCheckpointFailure, ...]:
        return ()

    def clear_pending(self, reported: Collection[PerspectiveOutcome]) -> None:
        """Nothing is ever pending."""
