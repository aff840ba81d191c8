"""How many outcomes go with one call: all of them, unless the database does not take as many at once.

It may have too little time for them, or refuse one and with it the call. Half as many go then, and half of those, down
to the one that cannot be taken; with every call that is taken it is twice as many again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_TRIES_ALONE = 3
_ENOUGH = 10_000


class Portions:
    """What one instance has learned of it."""

    def __init__(self) -> None:
        self._most = _ENOUGH
        self._refused_alone = 0

    def split(self, outcomes: Sequence[T]) -> tuple[list[T], list[T]]:
        """What goes with the next call, and what waits."""
        return list(outcomes[: self._most]), list(outcomes[self._most :])

    def accepted(self) -> None:
        self._most = min(2 * self._most, _ENOUGH)
        self._refused_alone = 0

    def refused(self, count: int) -> bool:
        """Note that a call with so many was refused. True when a single one was, again and again: give it up."""
        if count == 0:
            return False
        self._most = max(1, count // 2)
        self._refused_alone = self._refused_alone + 1 if count == 1 else 0
        return self._refused_alone >= _TRIES_ALONE
