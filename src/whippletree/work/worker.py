"""What a worker is to the loop of its instance.

One instance has one coordinator, one loop that claims, and several workers. The loop asks every worker how much it
could take, claims for all of them in one batch, hands out what came, and reports what they have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from whippletree.claim.batch import WorkBatch
from whippletree.message.outcome import Outcome, Rejection


class Worker(Protocol):
    """Handles the work of some queues. It never claims. Everything here is called by the loop, in the loop's task."""

    def start(self, changed: Callable[[], None]) -> None:
        """The loop begins. `changed` tells it that there is something to report, or room for more."""

    def wants(self, coming: Mapping[str, int]) -> Mapping[str, int]:
        """Its queues, and how much of each it could take now, besides what has come for it and is yet to be handed out.
        0 keeps the queue and takes nothing."""

    def take(self, batch: WorkBatch) -> None:
        """Begin with what is its own of a batch. Returns at once; the work goes on in tasks of the worker's."""

    def outcomes(self) -> Sequence[Outcome]:
        """What has ended since the last call, to be reported with the next batch. The loop sees to it that a report
        whose answer was lost is handed in again."""

    def lost(self, rejections: Sequence[Rejection]) -> None:
        """Leases of its work are gone: stop that work, whose effects may not be committed any more."""

    async def stop(self, grace: float) -> None:
        """Finish what is begun within the time, and give back the rest as releases among the last outcomes."""
