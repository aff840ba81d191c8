"""What the simulation knows of the database: every step's effect must be one that the step had a right to.

The ledger keeps its own account of what was committed and what was finished, and compares it with the tables after
each step. A workers' row that changed although the step had no business with it is a violation, and so is a message
that disappeared without a completion under the current lease, a skip or a burial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import asyncpg

StreamName = tuple[str, UUID]
"""Queue and stream."""


class Violation(AssertionError):
    """A step did what it had no right to do."""


class Row(NamedTuple):
    """A workers' row."""

    head_version: int
    ready_at: datetime | None
    attempts: int
    error: str | None
    instance_id: UUID | None
    lease_token: int | None
    lease_expiry: datetime | None
    leased_through: int | None


class Tables(NamedTuple):
    """The committed state."""

    pending: dict[StreamName, dict[int, UUID]]
    rows: dict[StreamName, Row]
    buried: set[tuple[str, UUID, int]]
    members: set[UUID]


class Report(NamedTuple):
    """What an instance said of a stream, under which token; `through` is the last version it completes."""

    instance_id: UUID
    stream: StreamName
    token: int
    through: int = 0


class Claimed(NamedTuple):
    """A message as an instance received it."""

    stream: StreamName
    version: int
    message_id: UUID
    token: int


@dataclass
class Step:
    """What one step was about to do: its right to change something."""

    now: datetime
    stored: list[tuple[StreamName, UUID]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    claimer: UUID | None = None
    claimed: list[Claimed] | None = None
    """What the claimer received; None when the answer did not reach it."""
    limits: dict[str, int] = field(default_factory=dict)
    operated: set[StreamName] = field(default_factory=set)
    """Streams that an operator redrove or skipped a message of."""


_TABLES = """
  SELECT 'message', queue, stream_id, version, NULL::timestamptz, NULL::integer, NULL, message_id, NULL::bigint,
    NULL::timestamptz, NULL::bigint
  FROM wh_messages
  UNION ALL
  SELECT 'row', queue, stream_id, head_version, NULLIF(ready_at, 'infinity'), attempts, error, instance_id, lease_token,
    lease_expiry, leased_through
  FROM wh_active_streams
  UNION ALL
  SELECT 'letter', queue, stream_id, version, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM wh_dead_letters
  UNION ALL
  SELECT 'member', NULL, instance_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM wh_service_instances"""


async def read_tables(db: asyncpg.Connection) -> Tables:
    """One statement, so one snapshot."""
    tables = Tables({}, {}, set(), set())
    for kind, queue, stream_id, version, *rest in await db.fetch(_TABLES):
        match kind:
            case "message":
                tables.pending.setdefault((queue, stream_id), {})[version] = rest[3]
            case "row":
                tables.rows[queue, stream_id] = Row(version, *rest)
            case "letter":
                tables.buried.add((queue, stream_id, version))
            case _:
                tables.members.add(stream_id)
    return tables


class Ledger:
    """The account of one schedule."""

    def __init__(self) -> None:
        self.committed: dict[StreamName, list[UUID]] = {}
        self.finished: dict[StreamName, int] = {}
        self.highest_token = 0
        self.tables = Tables({}, {}, set(), set())

    def observe(self, step: Step, after: Tables) -> None:
        """Compare the tables with the account, and write the step down. Raises `Violation`."""
        before = self.tables
        for stream, message_id in step.stored:
            self.committed.setdefault(stream, []).append(message_id)
        for stream in self.committed:
            self._check_messages(stream, step, before, after)
        for stream in before.rows.keys() | after.rows.keys():
            self._check_row(stream, step, before, after)
        if stray := after.pending.keys() - self.committed.keys():
            raise Violation(f"messages of {_names(stray)} were never committed")
        if step.claimed is not None:
            self._check_claim(step.claimed, step, after)
        self.highest_token = max([self.highest_token, *(row.lease_token or 0 for row in after.rows.values())])
        self.tables = after

    def _check_messages(self, stream: StreamName, step: Step, before: Tables, after: Tables) -> None:
        committed = self.committed[stream]
        done = self.finished.get(stream, 0)
        pending = after.pending.get(stream, {})
        first = len(committed) - len(pending)
        if pending != {version: committed[version - 1] for version in range(first + 1, len(committed) + 1)}:
            raise Violation(f"{_name(stream)}: {sorted(pending)} wait of {len(committed)} committed: a gap or a swap")
        if first < done:
            raise Violation(f"{_name(stream)}: version {first + 1} waits again after it was finished")
        for version in range(done + 1, first + 1):
            if (*stream, version) not in after.buried and not self._may_complete(stream, version, step, before):
                raise Violation(f"{_name(stream)}: version {version} was finished by nobody who held it")
        self.finished[stream] = first

    def _may_complete(self, stream: StreamName, version: int, step: Step, before: Tables) -> bool:
        row = before.rows.get(stream)
        return row is not None and any(
            report.stream == stream and report.through >= version and _is_current(report, row)
            for report in step.reports
        )

    def _check_row(self, stream: StreamName, step: Step, before: Tables, after: Tables) -> None:
        old, new = before.rows.get(stream), after.rows.get(stream)
        if stream not in self.committed:
            raise Violation(f"{_name(stream)}: a workers' row for a stream that nobody has stored into")
        if old == new:
            return
        if old is None:
            if new is not None and new.instance_id is not None and new.instance_id != step.claimer:
                raise Violation(f"{_name(stream)}: leased to an instance that did not claim")
            return
        ready = old.ready_at is not None and max(old.ready_at, old.lease_expiry or old.ready_at) <= step.now
        reported = any(report.stream == stream and _is_current(report, old) for report in step.reports)
        orphaned = old.instance_id is not None and old.instance_id not in after.members
        if not (stream in step.operated or reported or orphaned or (ready and step.claimer is not None)):
            raise Violation(f"{_name(stream)}: changed from {old} to {new} by a step that had no right to it")
        if new is None or new.lease_token is None or new.lease_token == old.lease_token:
            return
        if new.instance_id != step.claimer:
            raise Violation(f"{_name(stream)}: leased to an instance that did not claim")
        if new.lease_token <= self.highest_token:
            raise Violation(f"{_name(stream)}: token {new.lease_token} is not new")

    def _check_claim(self, claimed: Sequence[Claimed], step: Step, after: Tables) -> None:
        held: dict[StreamName, list[Claimed]] = {}
        for message in claimed:
            held.setdefault(message.stream, []).append(message)
        for stream, messages in held.items():
            row = after.rows.get(stream)
            if row is None or row.instance_id != step.claimer or {m.token for m in messages} != {row.lease_token}:
                raise Violation(f"{_name(stream)}: received {messages} without a lease: {row}")
            expected = range(row.head_version + 1, (row.leased_through or 0) + 1)
            if [m.version for m in messages] != list(expected):
                raise Violation(f"{_name(stream)}: received {[m.version for m in messages]}, leased {expected}")
            if [m.message_id for m in messages] != [self.committed[stream][version - 1] for version in expected]:
                raise Violation(f"{_name(stream)}: received other messages than were committed as {expected}")
        for stream, row in after.rows.items():
            if row.instance_id == step.claimer and (row.lease_token or 0) > self.highest_token and stream not in held:
                raise Violation(f"{_name(stream)}: leased to the claimer, who was not told")
        for queue, limit in step.limits.items():
            fresh = [m for m in claimed if m.stream[0] == queue and m.token > self.highest_token]
            if len(fresh) > limit:
                raise Violation(f"{queue}: {len(fresh)} messages claimed, {limit} wanted")

    def check_drained(self) -> None:
        """Everything committed is finished, each once and in order, and no workers' row is left."""
        for stream, committed in self.committed.items():
            if self.finished.get(stream, 0) != len(committed):
                raise Violation(f"{_name(stream)}: {self.finished.get(stream, 0)} of {len(committed)} are finished")
        if self.tables.rows:
            raise Violation(f"workers' rows are left: {self.tables.rows}")


def _is_current(report: Report, row: Row) -> bool:
    return row.instance_id == report.instance_id and row.lease_token == report.token


def _names(streams: set[StreamName]) -> str:
    return ", ".join(_name(stream) for stream in streams)


def _name(stream: StreamName) -> str:
    return f"{stream[0]} {str(stream[1])[:8]}"
