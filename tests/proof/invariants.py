"""What must hold in every committed state, whatever was interleaved to get there.

`check` looks at the tables alone. What became of each message only its `History` knows, told in the order of commits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import asyncpg


async def check(connection: asyncpg.Connection) -> list[str]:
    """What is wrong with the committed state; empty when nothing is. One statement, so one snapshot; reads only."""
    return [row[0] for row in await connection.fetch(_VIOLATIONS)]


class History:
    """Tell it what was committed, when it was committed; it collects what broke the protocol in `violations`.

    A stream is named by anything hashable, as long as it is the same each time.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._streams: dict[Hashable, _Stream] = {}

    def stored(self, stream: Hashable, versions: Sequence[int]) -> None:
        """Versions are dense and rise in the order of commits."""
        it = self._stream(stream)
        for version in versions:
            if version != it.written + 1:
                self._wrong(stream, f"version {version} was committed after version {it.written}")
            it.written = version

    def claimed(
        self,
        instance: Hashable,
        stream: Hashable,
        versions: Sequence[int],
        token: int,
        *,
        as_of: datetime,
        expiry: datetime,
    ) -> None:
        """A run begins at the head, has no gap, bears a new token, and nobody else holds the stream."""
        it = self._stream(stream)
        if it.lease is not None and it.lease.versions and it.lease.expiry > as_of:
            self._wrong(stream, f"{instance} got it while {it.lease.instance} holds it until {it.lease.expiry:%T}")
        if token <= it.last_token:
            self._wrong(stream, f"token {token} was given out after token {it.last_token}")
        if list(versions) != list(range(it.settled + 1, it.settled + 1 + len(versions))):
            self._wrong(stream, f"{instance} got versions {list(versions)} after version {it.settled} was settled")
        it.last_token = token
        it.lease = _Lease(instance, token, list(versions), expiry)

    def completed(self, instance: Hashable, stream: Hashable, token: int, through: int) -> None:
        """Accepted: everything handed out up to a version is handled, in order, once."""
        it = self._stream(stream)
        lease = self._lease(instance, stream, token, "completed")
        if lease is None:
            return
        done = [version for version in lease.versions if version <= through]
        if not done or done[-1] != through:
            self._wrong(stream, f"{instance} completed version {through}, which it does not hold")
        for version in done:
            if version != it.settled + 1:
                self._wrong(stream, f"version {version} was handled after {it.handled[-3:]}")
            it.handled.append(version)
            it.settled = version
        lease.versions = lease.versions[len(done) :]

    def failed(self, instance: Hashable, stream: Hashable, token: int, version: int | None = None) -> None:
        """Accepted: the head failed, and the whole run is given back."""
        lease = self._lease(instance, stream, token, "failed")
        if lease is None:
            return
        if version is not None and version != lease.versions[0]:
            self._wrong(stream, f"{instance} failed version {version} before version {lease.versions[0]} was settled")
        lease.versions = []

    def released(self, instance: Hashable, stream: Hashable, token: int, from_version: int | None = None) -> None:
        """Accepted: the run is given back from a version on."""
        lease = self._lease(instance, stream, token, "released")
        if lease is not None:
            lease.versions = [v for v in lease.versions if from_version is not None and v < from_version]

    def renewed(self, instance: Hashable, stream: Hashable, token: int, expiry: datetime) -> None:
        """Accepted: the lease lasts until another time."""
        lease = self._lease(instance, stream, token, "renewed")
        if lease is not None:
            lease.expiry = expiry

    def refused(self, verb: str, instance: Hashable, stream: Hashable, token: int, version: int | None = None) -> None:
        """A report changed nothing. Wrong when the lease is the reporter's and the version is in hand."""
        lease = self._stream(stream).lease
        if lease is None or (lease.instance, lease.token) != (instance, token) or not lease.versions:
            return
        # Only the head can fail.
        reportable = lease.versions[:1] if verb == "fail" else lease.versions
        if version is None or version in reportable:
            self._wrong(stream, f"{instance} was not let {verb} version {version} under its own token {token}")

    def skipped(self, stream: Hashable, version: int, as_of: datetime | None = None) -> None:
        """An operator moved the head to the dead letters. Nobody may have been handling it."""
        it = self._stream(stream)
        if as_of is not None and it.lease is not None and it.lease.versions and it.lease.expiry > as_of:
            self._wrong(stream, f"version {version} was skipped while {it.lease.instance} holds it")
        if version != it.settled + 1:
            self._wrong(stream, f"version {version} was skipped after version {it.settled} was settled")
        it.settled = version
        it.lease = None

    def freed(self, instance: Hashable, as_of: datetime) -> None:
        """The instance left or was evicted: what it holds is anybody's from now on."""
        for it in self._streams.values():
            if it.lease is not None and it.lease.instance == instance:
                it.lease.expiry = min(it.lease.expiry, as_of)

    def handled(self, stream: Hashable) -> list[int]:
        """The versions handled, in the order in which they were."""
        return list(self._stream(stream).handled)

    def unhandled(self, but: Iterable[Hashable] = ()) -> list[str]:
        """What was committed and is neither handled nor dead, once everything should be."""
        spared = set(but)
        return [
            f"{stream}: written to version {it.written}, settled to {it.settled}"
            for stream, it in self._streams.items()
            if it.settled != it.written and stream not in spared
        ]

    def _stream(self, stream: Hashable) -> _Stream:
        return self._streams.setdefault(stream, _Stream())

    def _lease(self, instance: Hashable, stream: Hashable, token: int, verb: str) -> _Lease | None:
        it = self._stream(stream)
        if token != it.last_token:
            self._wrong(stream, f"{instance} {verb} under token {token}, the latest is {it.last_token}")
        if it.lease is None or it.lease.instance != instance or not it.lease.versions:
            self._wrong(stream, f"{instance} {verb} under token {token} without a lease")
            return None
        return it.lease

    def _wrong(self, stream: Hashable, words: str) -> None:
        self.violations.append(f"{stream}: {words}")


@dataclass(slots=True)
class _Lease:
    instance: Hashable
    token: int
    versions: list[int]
    """Handed out under this lease and still to be reported on."""
    expiry: datetime


@dataclass(slots=True)
class _Stream:
    written: int = 0
    settled: int = 0
    """The last version that is handled or dead."""
    handled: list[int] = field(default_factory=list)
    last_token: int = 0
    lease: _Lease | None = None


_VIOLATIONS = """
WITH pending AS (
  SELECT m.queue, m.stream_id, min(m.version) AS first, max(m.version) AS last, count(*) AS count,
    bool_and(m.stream_id = m.message_id) AS streamless
  FROM wh_messages m GROUP BY m.queue, m.stream_id
), stream AS (
  SELECT queue, stream_id, s.ready_at, s.head_version, s.attempts, s.stream_hash, s.instance_id, s.lease_expiry,
    s.ready_since, s.lease_token, s.leased_through, s.stream_id IS NOT NULL AS active, p.first,
    COALESCE(p.count, 0) AS count,
    -- The work of an event queue is the stream's events, and they stay.
    CASE WHEN queue IN ('outbox', 'inbox') THEN COALESCE(p.last, s.head_version) ELSE w.event_version END AS last,
    COALESCE(p.streamless, w.stream_id IS NULL) AS streamless,
    CASE queue WHEN 'outbox' THEN w.outbox_version WHEN 'inbox' THEN w.inbox_version ELSE w.event_version END AS written
  FROM wh_active_streams s
  FULL JOIN pending p USING (queue, stream_id)
  LEFT JOIN wh_streams w USING (stream_id)
)
SELECT format('%s %s: %s', stream.queue, stream.stream_id, violation.words)
FROM stream
CROSS JOIN LATERAL (VALUES
  (NOT active, format('stranded: versions %s to %s wait without a workers'' row', first, last)),
  (first <> head_version + 1, format('gap: the head is %s, the first pending version %s', head_version, first)),
  (count > 0 AND count <> last - first + 1, format('gap: %s messages from version %s to %s', count, first, last)),
  (NOT streamless AND last IS DISTINCT FROM written,
    format('lost: pending to version %s, written to %s', last, written)),
  (streamless AND last > 1, format('a message without a stream has version %s', last)),
  (num_nonnulls(instance_id, lease_expiry, lease_token, leased_through) NOT IN (0, 4), 'broken lease'),
  (leased_through <= head_version, format('empty lease: through %s, head %s', leased_through, head_version)),
  (leased_through > last, format('leased through %s, but there is nothing after %s', leased_through, last)),
  -- Its holder's death puts it back to where it was when it was claimed.
  (ready_at NOT IN (lease_expiry, ready_since), format('leased until %s, but ready at %s', lease_expiry, ready_at)),
  (instance_id IS NOT NULL AND attempts < 1, 'leased, but the attempt was not counted'),
  (instance_id IS NULL AND ready_at = '-infinity', 'ready since for ever'),
  (lease_token > (SELECT last_value FROM wh_lease_tokens), format('token %s was never drawn', lease_token)),
  (stream_hash <> stream_hash(stream.stream_id), format('in partitions of another stream: hash %s', stream_hash))
) AS violation(holds, words)
WHERE violation.holds
UNION ALL
SELECT format('inbox %s: message %s was never remembered', m.stream_id, m.message_id)
FROM wh_messages m
WHERE m.queue = 'inbox' AND NOT EXISTS (SELECT FROM wh_message_deduplication d WHERE d.message_id = m.message_id)
UNION ALL
SELECT format('partitions: %s rows for %s partitions', count(*), (SELECT partition_count FROM wh_settings))
FROM wh_partitions
HAVING count(*) <> (SELECT partition_count FROM wh_settings)
"""
