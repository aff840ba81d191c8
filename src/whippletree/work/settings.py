"""What an instance may do at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceptorSettings:
    """How much one instance does at once."""

    concurrency: int = 20
    """Receptors that run at once outside of a transaction."""
    transactions: int = 6
    """Transactions that are open at once; each takes a connection of the pool."""
    capacity: int = 4000
    """Messages of one queue in hand at most, claimed by halves. Slow receptors have fewer in hand, so that others can
    share the work."""
    longest_pause: float = 5.0
    """Seconds between two attempts to reach the database, at most."""
