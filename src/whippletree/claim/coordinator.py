"""Runs work batches: one call, one transaction, one round trip. PostgreSQL decides; this is its typed face."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from whippletree.claim.batch import WorkBatch, WorkBatchFlags, WorkReport
from whippletree.claim.held import LEASE_LOST, HeldWork, Run, StreamReports
from whippletree.claim.instance import ServiceInstance
from whippletree.message.envelope import ClaimedMessage, Queue
from whippletree.message.outcome import Refusal, Rejection
from whippletree.store.database import translated
from whippletree.store.new_messages import as_json
from whippletree.store.statements import call


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """How one instance works. Times are seconds."""

    lease_seconds: float = 300
    stale_threshold_seconds: float = 600
    partition_count: int | None = None
    """Checked against the installation when given."""
    max_partitions_per_instance: int | None = None
    run_limit: int = 100
    """Messages of one stream in one claim, so that a long stream does not keep others waiting."""
    byte_limit: int = 16 * 1024 * 1024
    """Payload bytes in one claim, about."""
    max_attempts: int = 10


class WorkCoordinator:
    """One instance's dealings with the database. Use it from one task at a time."""

    def __init__(
        self,
        connections: asyncpg.Pool[asyncpg.Record],
        instance: ServiceInstance,
        settings: CoordinatorSettings | None = None,
        *,
        schema: str = "whippletree",
    ) -> None:
        self.instance = instance
        self.settings = settings or CoordinatorSettings()
        self.held = HeldWork()
        self.session_locked = False
        self._connections = connections
        self._process_work = call(schema, "process_work", 39)
        self._resume_claims = call(schema, "resume_claims", 3)
        self._leave = call(schema, "leave", 1)
        self._require_partition_count = call(schema, "require_partition_count", 1)
        self._partitions_version = -1
        self._partitions: Sequence[int] = ()
        self._last_tokens = dict.fromkeys(Queue, 0)
        self._answer_lost = False

    async def process_work_batch(self, report: WorkReport, *, as_of: datetime | None = None) -> WorkBatch:
        """Hand in a report and get work back, atomically.

        When the connection is lost nothing is half-done, but what was done is unknown: hand in the same report again.
        What had been accepted is then rejected as no longer held, and a claim whose answer was lost comes again.
        """
        for outgoing in report.new_outbox_messages:
            outgoing.check()
        for received in report.new_inbox_messages:
            received.check()
        reports = self.held.resolve(report.outcomes, report.renewals)
        rows = await self._exchange(report, reports, as_of)
        return self._settle(reports, rows)

    async def leave(self) -> None:
        """End this instance's membership. What it still holds is free for the others at once."""
        with translated():
            await self._connections.execute(self._leave, self.instance.instance_id)
        self.held = HeldWork()

    async def _exchange(
        self, report: WorkReport, reports: StreamReports, as_of: datetime | None
    ) -> list[asyncpg.Record]:
        claim = {} if WorkBatchFlags.SKIP_CLAIM in report.flags else report.limits
        resumed: list[asyncpg.Record] = []
        with translated():
            if self._partitions_version == -1 and self.settings.partition_count is not None:
                await self._connections.execute(self._require_partition_count, self.settings.partition_count)
            if self._answer_lost:
                for queue in claim:
                    resumed += await self._connections.fetch(
                        self._resume_claims, self.instance.instance_id, queue, self._last_tokens[queue]
                    )
            self._answer_lost = bool(claim)
            rows = await self._connections.fetch(
                self._process_work,
                *self._identity(),
                as_json(report.new_outbox_messages),
                as_json(report.new_inbox_messages),
                *_columns(_keys(run, through) for run, through in reports.completed.items()),
                *_failures(reports),
                *_columns(_keys(run, version) for run, version in reports.released.items()),
                *_columns((_keys(run) for run in reports.renewed), 3),
                [str(queue) for queue in claim],
                list(claim.values()),
                *self._terms(),
                WorkBatchFlags.DEBUG_MODE in report.flags,
                report.wait,
                self._partitions_version,
                as_of,
            )
            self._answer_lost = False
        return resumed + rows

    def _identity(self) -> tuple[Any, ...]:
        who = self.instance
        metadata = msgspec.json.encode(dict(who.metadata)).decode()
        return who.instance_id, who.service_name, who.host_name, who.process_id, metadata, self.session_locked

    def _terms(self) -> tuple[Any, ...]:
        s = self.settings
        return (
            s.lease_seconds,
            s.stale_threshold_seconds,
            s.max_partitions_per_instance,
            s.run_limit,
            s.byte_limit,
            s.max_attempts,
            None,
        )

    def _settle(self, reports: StreamReports, rows: list[asyncpg.Record]) -> WorkBatch:
        claimed: dict[str, list[ClaimedMessage]] = {Queue.OUTBOX: [], Queue.INBOX: []}
        refused: list[Refusal] = []
        lost: list[tuple[str, Run]] = []
        for row in rows:
            kind = row[0]
            if kind == "claimed":
                claimed[row[1]].append(ClaimedMessage(row[1], *row[3:15]))
            elif kind == "rejected":
                lost.append((row[15], _reported(reports, row[15])[row[2] - 1]))
            elif kind == "partitions":
                self._partitions_version = row[4]
                self._partitions = msgspec.json.decode(row[8], type=tuple[int, ...])
            elif kind != "stored":
                refused.append(Refusal(row[5], kind, row[15]))
        for verb, run in lost:
            reports.rejected.extend(Rejection(message.message_id, verb, LEASE_LOST) for message in run.messages)
        self.held.settle(reports, [run for _, run in lost])
        for queue, messages in claimed.items():
            self.held.add(messages)
            if messages:
                self._last_tokens[Queue(queue)] = messages[-1].lease_token
        return WorkBatch(
            claimed_outbox_messages=claimed[Queue.OUTBOX],
            claimed_inbox_messages=claimed[Queue.INBOX],
            assigned_partitions=self._partitions,
            rejected=reports.rejected,
            refused=refused,
        )


def _reported(reports: StreamReports, verb: str) -> list[Run]:
    """The runs of one verb, in the order in which they were handed in."""
    match verb:
        case "complete":
            return list(reports.completed)
        case "fail":
            return list(reports.failed)
        case "release":
            return list(reports.released)
        case _:
            return list(reports.renewed)


def _keys(run: Run, *more: Any) -> tuple[Any, ...]:
    return run.queue, run.stream_id, run.lease_token, *more


def _failures(reports: StreamReports) -> list[list[Any]]:
    return _columns(
        (
            _keys(run, version, _storable(failure.error), failure.retry_seconds, str(failure.verdict))
            for run, (version, failure) in reports.failed.items()
        ),
        7,
    )


def _columns(rows: Iterable[tuple[Any, ...]], width: int = 4) -> list[list[Any]]:
    """Rows turned into one array per column, as the database takes them."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def _storable(error: str) -> str:
    """An error's text can hold anything; PostgreSQL's text cannot."""
    return error.replace("\x00", "\\0").encode("utf-8", "replace").decode()[:10_000]
