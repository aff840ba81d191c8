"""How far back a claim has to look, so that it does not walk again and again over what is long done.

While some session keeps an old snapshot open, PostgreSQL cannot clear away the index entries of finished work, and a
claim that starts at the oldest one reads them all. See `docs/decisions/claim-horizon.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import asyncpg

_SLACK = timedelta(milliseconds=100)
"""Work becomes visible when its transaction commits, a little after the time at which it was ready."""

_SHARE = 20
"""A full scan is due again after so many times as long as the last one took."""

_LATEST = 10.0
"""Seconds after which a full scan is due, however long it takes."""

_TELLING = frozenset({"outbox", "inbox"})
"""The queues whose claims say since when the oldest work had been ready; any other is scanned in full."""


class Scan(NamedTuple):
    """A claim under way. `since` is from when on it looks; None for a full scan."""

    queues: Collection[str]
    since: datetime | None
    began: float


class ReadyHorizon:
    """What lies behind one instance's horizon waits for the next full scan, and is never lost."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._oldest: dict[str, datetime] = {}
        self._full_scan_due = 0.0

    def begin(self, queues: Collection[str]) -> Scan:
        """The next claim, from these queues."""
        now = self._clock()
        known = self._oldest.keys() >= set(queues)
        if not queues or not known or now >= self._full_scan_due:
            return Scan(queues, None, now)
        return Scan(queues, min(self._oldest[queue] for queue in queues) - _SLACK, now)

    def end(self, scan: Scan, rows: Iterable[asyncpg.Record]) -> None:
        """Take note of what the claim returned.

        Nothing that could be claimed lay between where it began and the oldest that it found.
        """
        if scan.since is None and scan.queues:
            now = self._clock()
            self._full_scan_due = now + min(_SHARE * (now - scan.began), _LATEST)
        for queue in _TELLING.intersection(scan.queues):
            oldest = next((row[15] for row in rows if row[0] == "claimed" and row[1] == queue), None)
            if oldest is not None:
                self._oldest[queue] = datetime.fromtimestamp(float(oldest), UTC)

    def reset(self) -> None:
        """Look at everything again: what was another's until now may have been ready for long."""
        self._full_scan_due = 0.0
