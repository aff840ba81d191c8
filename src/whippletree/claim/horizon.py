"""How far back a claim has to look, so that it does not walk again and again over what is not for it.

While some session keeps an old snapshot open, PostgreSQL cannot clear away the index entries of finished work, and a
claim that starts at the oldest one reads them all; likewise the ready work of another instance that does not keep up.
See `docs/decisions/claim-horizon.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import asyncpg

_SHARE = 20
"""A full scan is due again after so many times as long as the last one took."""

_LATEST = 10.0
"""Seconds after which a full scan is due, however long it takes."""

_TELLING = frozenset({"outbox", "inbox"})
"""The queues whose claims say from when on to look; any other is scanned in full."""

_EPOCH = datetime.fromtimestamp(0, UTC)


class Scan(NamedTuple):
    """A claim under way. `since` is from when on it looks, by the database's clock; None for a full scan."""

    queues: Collection[str]
    since: datetime | None
    began: float


class ReadyHorizon:
    """What lies behind one instance's horizon waits for the next full scan, and is never lost."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reach: dict[str, datetime] = {}
        self._full_scan_due = 0.0

    def begin(self, queues: Collection[str]) -> Scan:
        """The next claim, from these queues."""
        now = self._clock()
        known = self._reach.keys() >= set(queues)
        if not queues or not known or now >= self._full_scan_due:
            return Scan(queues, None, now)
        return Scan(queues, min(self._reach[queue] for queue in queues), now)

    def end(self, scan: Scan, rows: Iterable[asyncpg.Record]) -> None:
        """Take note of what the claim returned: its first row says from when on the next one has to look."""
        if scan.since is None and scan.queues:
            now = self._clock()
            self._full_scan_due = now + min(_SHARE * (now - scan.began), _LATEST)
        for queue in _TELLING.intersection(scan.queues):
            first = next((row for row in rows if row[1] == queue and row[0] in ("claimed", "nothing")), None)
            if first is not None:
                self._reach[queue] = _EPOCH + timedelta(microseconds=int(first[15]))

    def reset(self) -> None:
        """Look at everything again: what was another's until now may have been ready for long."""
        self._full_scan_due = 0.0
