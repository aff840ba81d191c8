"""The coordinator in plain Python: what each call must answer, and what the tables must say afterwards.

One session at a time and a clock that is told, so that everything is exact. The only freedom left to the database is
the order among streams that have been ready equally long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, permutations
from typing import NamedTuple
from uuid import UUID

StreamName = tuple[str, UUID]
"""Queue and stream."""

NEVER = datetime.max.replace(tzinfo=UTC)
"""When a parked stream is ready."""

_MOST_ORDERS = 2000


class Waiting(NamedTuple):
    """A stored message; alone, when it has no stream."""

    message_id: UUID
    scheduled_for: datetime | None
    alone: bool


@dataclass(frozen=True)
class Lease:
    instance_id: UUID
    token: int
    expiry: datetime
    through: int
    ready_since: datetime


@dataclass
class Stream:
    """A stream while it has work. `waiting` begins just after the head."""

    head: int
    ready_at: datetime
    partition: int
    waiting: list[Waiting] = field(default_factory=list)
    attempts: int = 0
    error: str | None = None
    lease: Lease | None = None


class Claim(NamedTuple):
    """What an instance asks for."""

    instance_id: UUID
    queue: str
    limit: int
    run_limit: int


class Visible(NamedTuple):
    """A message as wh_outbox and wh_inbox show it."""

    version: int
    status: int
    attempts: int
    error: str | None
    instance_id: UUID | None
    lease_expiry: datetime | None
    scheduled_for: datetime | None
    parked: bool


Plan = dict[StreamName, list[int]]


@dataclass
class Coordinator:
    """All of the state."""

    lease_seconds: float
    max_attempts: int
    now: datetime
    owners: list[UUID | None]
    """By partition."""
    streams: dict[StreamName, Stream] = field(default_factory=dict)
    written: dict[StreamName, int] = field(default_factory=dict)
    dead: list[UUID] = field(default_factory=list)

    def copy(self) -> Coordinator:
        """Another world that begins like this one."""
        streams = {name: replace(stream, waiting=list(stream.waiting)) for name, stream in self.streams.items()}
        return replace(
            self, owners=list(self.owners), streams=streams, written=dict(self.written), dead=list(self.dead)
        )

    def store(self, name: StreamName, message: Waiting, partition: int) -> int:
        """The message's version."""
        version = self.written[name] = self.written.get(name, 0) + 1
        if name not in self.streams:
            ready_at = max(self.now, message.scheduled_for or self.now)
            self.streams[name] = Stream(version - 1, ready_at, partition)
        self.streams[name].waiting.append(message)
        return version

    def plans(self, claim: Claim) -> Iterator[Plan]:
        """What a claim may do: versions by stream, in order; none for a stream with nothing to hand out."""
        ready = [
            (stream.ready_at, name)
            for name, stream in self.streams.items()
            if name[0] == claim.queue and self._is_ready(stream) and self._may_take(claim.instance_id, stream)
        ]
        groups = [[name for _, name in group] for _, group in groupby(sorted(ready), key=lambda one: one[0])]
        runs = {name: self._run(self.streams[name], claim.run_limit) for _, name in ready}
        if sum(max(1, len(run)) for run in runs.values()) <= claim.limit:
            yield runs
            return
        for names in islice(_orders(groups, claim.limit), _MOST_ORDERS):
            plan: Plan = {}
            room = claim.limit
            for name in names:
                if room > 0:
                    plan[name] = runs[name][:room]
                    # A stream with nothing to hand out takes a place too.
                    room -= max(1, len(plan[name]))
            yield plan

    def claim(self, plan: Plan, claim: Claim, token: int) -> None:
        expiry = self.now + timedelta(seconds=self.lease_seconds)
        for name, run in plan.items():
            if run:
                stream = self.streams[name]
                stream.lease = Lease(claim.instance_id, token, expiry, run[-1], stream.ready_at)
                stream.attempts += 1
            else:
                self._settle(name)

    def complete(self, name: StreamName, instance_id: UUID, token: int, through: int) -> bool:
        stream = self._held(name, instance_id, token)
        if stream is None or stream.lease is None or not stream.head < through <= stream.lease.through:
            return False
        rest = through < stream.lease.through
        self._move_head(name, through)
        stream.error = None
        stream.attempts = 1 if rest else 0
        if not rest:
            self._give_back(stream, self.now)
        return True

    def fail(self, name: StreamName, instance_id: UUID, token: int, version: int, seconds: float, verdict: str) -> bool:
        stream = self._held(name, instance_id, token)
        if stream is None or version != stream.head + 1:
            return False
        stream.error = "boom"
        stream.attempts -= verdict == "postpone"
        self._give_back(stream, self.now + timedelta(seconds=seconds))
        if verdict == "park" or (verdict == "retry" and stream.attempts >= self.max_attempts):
            self._park(name)
        return True

    def release(self, name: StreamName, instance_id: UUID, token: int, version: int) -> bool:
        stream = self._held(name, instance_id, token)
        if stream is None or stream.lease is None or not stream.head < version <= stream.lease.through:
            return False
        if version > stream.head + 1:
            stream.lease = replace(stream.lease, through=version - 1)
        else:
            stream.attempts -= 1
            self._give_back(stream, self.now)
        return True

    def renew(self, name: StreamName, instance_id: UUID, token: int) -> bool:
        stream = self._held(name, instance_id, token)
        if stream is None or stream.lease is None:
            return False
        stream.ready_at = self.now + timedelta(seconds=self.lease_seconds)
        stream.lease = replace(stream.lease, expiry=stream.ready_at)
        return True

    def redrive(self, name: StreamName) -> bool:
        stream = self.streams.get(name)
        if stream is None or stream.lease is not None or stream.ready_at <= self.now:
            return False
        stream.ready_at, stream.attempts = self.now, 0
        return True

    def skip(self, name: StreamName, version: int) -> bool:
        stream = self.streams.get(name)
        if stream is None or version != stream.head + 1:
            return False
        if stream.lease is not None and stream.lease.expiry > self.now:
            return False
        self.dead.append(stream.waiting[0].message_id)
        stream.attempts, stream.error = 0, None
        self._give_back(stream, self.now)
        self._move_head(name, version)
        return True

    def free(self, instance_id: UUID) -> None:
        """The instance is gone: its partitions are nobody's, its streams wait where they were when it claimed them."""
        self.owners = [None if owner == instance_id else owner for owner in self.owners]
        for stream in self.streams.values():
            if stream.lease is not None and stream.lease.instance_id == instance_id:
                stream.lease = replace(stream.lease, expiry=min(stream.lease.expiry, self.now))
                stream.ready_at = min(stream.lease.ready_since, self.now)

    def visible(self) -> dict[tuple[str, UUID], Visible]:
        """Every waiting message, as the views must show it, by queue and message id."""
        return {
            (name[0], message.message_id): self._show(stream, stream.head + place, message)
            for name, stream in self.streams.items()
            for place, message in enumerate(stream.waiting, 1)
        }

    def _show(self, stream: Stream, version: int, message: Waiting) -> Visible:
        lease = stream.lease if stream.lease is not None and version <= stream.lease.through else None
        holder = lease.instance_id if lease is not None else None
        expiry = lease.expiry if lease is not None else None
        if version > stream.head + 1:
            return Visible(version, 1, 0, None, holder, expiry, message.scheduled_for, False)
        parked = stream.ready_at == NEVER
        failed = stream.error is not None
        later = None if parked else stream.ready_at
        scheduled = later if failed and stream.lease is None else message.scheduled_for
        return Visible(version, 9 if failed else 1, stream.attempts, stream.error, holder, expiry, scheduled, parked)

    def _is_ready(self, stream: Stream) -> bool:
        return stream.ready_at <= self.now and (stream.lease is None or stream.lease.expiry <= self.now)

    def _may_take(self, instance_id: UUID, stream: Stream) -> bool:
        """An expired lease is anybody's; everything else is the partition's owner's."""
        return stream.lease is not None or self.owners[stream.partition] == instance_id

    def _run(self, stream: Stream, run_limit: int) -> list[int]:
        """The versions that may be handed out: due, and one by one once the head has been tried."""
        most = run_limit if stream.attempts == 0 else 1 if stream.attempts < self.max_attempts else 0
        due = 0
        while due < len(stream.waiting) and (stream.waiting[due].scheduled_for or self.now) <= self.now:
            due += 1
        return list(range(stream.head + 1, stream.head + 1 + min(most, due)))

    def _settle(self, name: StreamName) -> None:
        stream = self.streams[name]
        if stream.attempts >= self.max_attempts:
            stream.error = stream.error or f"lease ran out {self.max_attempts} times: handling it ends the process"
            self._park(name)
        else:
            self._give_back(stream, max(self.now, stream.waiting[0].scheduled_for or self.now))

    def _held(self, name: StreamName, instance_id: UUID, token: int) -> Stream | None:
        stream = self.streams.get(name)
        if stream is None or stream.lease is None:
            return None
        return stream if (stream.lease.instance_id, stream.lease.token) == (instance_id, token) else None

    def _park(self, name: StreamName) -> None:
        stream = self.streams[name]
        self._give_back(stream, NEVER)
        if stream.waiting[0].alone:
            self.dead.append(stream.waiting[0].message_id)
            self._move_head(name, stream.head + 1)

    def _move_head(self, name: StreamName, version: int) -> None:
        stream = self.streams[name]
        stream.waiting = stream.waiting[version - stream.head :]
        stream.head = version
        if not stream.waiting:
            del self.streams[name]

    def _give_back(self, stream: Stream, ready_at: datetime) -> None:
        stream.lease, stream.ready_at = None, ready_at


def _orders(groups: Sequence[list[StreamName]], limit: int) -> Iterator[list[StreamName]]:
    """The first streams, in every order: those of an earlier group first, those of one group anyhow."""
    if not groups or limit <= 0:
        yield []
        return
    for first in permutations(groups[0], min(limit, len(groups[0]))):
        for rest in _orders(groups[1:], limit - len(first)):
            yield [*first, *rest]
