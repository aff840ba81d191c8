"""How many streams one transaction takes of those that wait.

Small receptors share a commit: one transaction takes all. Slow ones would wait for each other in it while other
transactions have nothing to do: each takes its share. Receptors that get in each other's way, by deadlocks, do so the
more the more transactions there are: for a while one takes all again.
"""

from __future__ import annotations

LONG_ENOUGH = 0.05
"""Seconds after which a group takes in no more, so that a slow receptor does not keep others from their commit."""

_SLOW = 0.01
"""Seconds for one message from which spreading is worth more than sharing a commit."""

_CROWDED_FOR = 50
"""Groups for which nothing is spread after receptors were in each other's way."""

_WEIGHT = 0.3


class Pace:
    """Knows how long receptors have taken of late."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._crowded = 0

    def share(self, waiting: int, free: int) -> int:
        """How many of the waiting streams to take along, where so many transactions have nothing to do."""
        if self._crowded:
            self._crowded -= 1
            return waiting
        return waiting // free if self._seconds > _SLOW else waiting

    def took(self, seconds: float, messages: int) -> None:
        """A group of so many messages was handled in that time."""
        if messages:
            self._seconds += _WEIGHT * (seconds / messages - self._seconds)

    def collided(self) -> None:
        """A group could not be committed as it was."""
        self._crowded = _CROWDED_FOR
