"""How much an instance takes in hand: as much as it ends soon, so that the rest is free for the others."""

from __future__ import annotations

_SOON = 0.25
_LATE = 1.0


class Room:
    """The room for one queue's work. It grows while work ends soon after it was taken, and shrinks while it does not.

    Times are seconds."""

    __slots__ = ("_largest", "_smallest", "in_hand", "limit")

    def __init__(self, *, smallest: int, largest: int) -> None:
        self._smallest = smallest
        self._largest = largest
        self.limit = smallest
        self.in_hand = 0

    def free(self, coming: int = 0) -> int:
        """How much to take next, besides what is coming: half of the room at most, so that the other half comes while
        this one is worked."""
        return max(0, min(self.limit - self.in_hand - coming, (self.limit + 1) // 2))

    def taken(self, count: int) -> None:
        self.in_hand += count

    def ended(self, count: int, seconds: float) -> None:
        """So much has ended, so long after it was taken."""
        self.in_hand -= count
        if seconds < _SOON:
            self.limit = min(self._largest, self.limit + count)
        elif seconds > _LATE:
            self.limit = max(self._smallest, self.limit - count)
