"""How far back a claim has to look, so that it does not walk again and again over what is not for it.

While some session keeps an old snapshot open, PostgreSQL cannot clear away the index entries of finished work, and a
claim that starts at the oldest one reads them all; likewise the ready work of another instance that does not keep up.
See `docs/decisions/claim-horizon.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import asyncpg

_SLACK = 0.1
"""Seconds: work becomes visible when its transaction commits, a little after the time at which it was ready."""

_SHARE = 20
"""A full scan is due again after so many times as long as the last one took."""

_LATEST = 10.0
"""Seconds after which a full scan is due, however long it takes."""

_TELLING = frozenset({"outbox", "inbox"})
"""The queues whose claims say for how long the oldest work had been ready; any other is scanned in full."""


class Scan(NamedTuple):
    """A claim under way. `look_back` is how many seconds it looks back; None for a full scan."""

    queues: Collection[str]
    look_back: float | None
    began: float


class ReadyHorizon:
    """What lies behind one instance's horizon waits for the next full scan, and is never lost.

    Only spans of time leave this process: the server's clock and ours need not agree.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reach: dict[str, float] = {}
        self._full_scan_due = 0.0

    def begin(self, queues: Collection[str]) -> Scan:
        """The next claim, from these queues."""
        now = self._clock()
        known = self._reach.keys() >= set(queues)
        if not queues or not known or now >= self._full_scan_due:
            return Scan(queues, None, now)
        return Scan(queues, now - min(self._reach[queue] for queue in queues) + _SLACK, now)

    def end(self, scan: Scan, rows: Iterable[asyncpg.Record]) -> None:
        """Take note of what the claim returned.

        Nothing that could be claimed lay between where it began and the oldest that it found; or, where it found
        nothing, between there and now.
        """
        if scan.look_back is None and scan.queues:
            now = self._clock()
            self._full_scan_due = now + min(_SHARE * (now - scan.began), _LATEST)
        for queue in _TELLING.intersection(scan.queues):
            age = next((row[15] for row in rows if row[0] == "claimed" and row[1] == queue), 0)
            self._reach[queue] = scan.began - float(age)

    def reset(self) -> None:
        """Look at everything again: what was another's until now may have been ready for long."""
        self._full_scan_due = 0.0
