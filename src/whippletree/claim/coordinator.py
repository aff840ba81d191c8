"""Runs work batches: one call, one transaction, one round trip. PostgreSQL decides; this is its typed face."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from whippletree.claim.answer import Answer
from whippletree.claim.batch import WorkBatch, WorkBatchFlags, WorkReport, require_seconds, require_whole
from whippletree.claim.held import HeldWork, Run, StreamReports, Work, rejections_of
from whippletree.claim.horizon import ReadyHorizon
from whippletree.claim.instance import ServiceInstance
from whippletree.claim.reports import columns_of, lost_runs
from whippletree.claim.unanswered import UnansweredCalls, news, not_claimed_again
from whippletree.message.codec import MAX_PAYLOAD_BYTES
from whippletree.message.envelope import worked_as
from whippletree.message.outcome import (
    Outcome,
    PerspectiveCheckpointCompletion,
    PerspectiveCheckpointFailure,
    Refusal,
    Rejection,
)
from whippletree.store.database import lent, translated
from whippletree.store.new_messages import as_json
from whippletree.store.statements import call
from whippletree.store.transaction import Connection


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
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    """Of a new message in a work report. More only where the installation allows more."""

    def __post_init__(self) -> None:
        require_seconds(lease_seconds=self.lease_seconds, stale_threshold_seconds=self.stale_threshold_seconds)
        for name in ("run_limit", "byte_limit", "max_attempts", "max_payload_bytes"):
            require_whole(name, getattr(self, name), 1)
        for name, least in (("partition_count", 1), ("max_partitions_per_instance", 0)):
            require_whole(name, getattr(self, name), least, optional=True)

    @property
    def patience(self) -> float:
        """How long a call waits for its answer before it counts as lost."""
        return min(max(self.lease_seconds, 5.0), 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedIn:
    """Outcomes that were handed in within the caller's transaction."""

    rejected: Sequence[Rejection]
    settle: Callable[[], None]
    """Lets go of the work that has ended. To be called once the transaction is committed."""
    forget: Callable[[], None]
    """Lets go of what was rejected, and of nothing else. To be called once the transaction is rolled back."""


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
        self.session_locked = False
        self._schema = schema
        self._connections = connections
        self._process_work = call(schema, "process_work", 39)
        self._report_work = call(schema, "report_work", 23)
        self._leave = call(schema, "leave", 1)
        self._require_partition_count = call(schema, "require_partition_count", 1)
        self._begin()

    def _begin(self) -> None:
        self.held = HeldWork()
        self._partitions_version = -1
        self._partitions: Sequence[int] = ()
        self._last_tokens: dict[str, int] = {}
        self._horizon = ReadyHorizon()
        self._unanswered = UnansweredCalls(self.instance.instance_id, self._schema)

    async def process_work_batch(self, report: WorkReport, *, as_of: datetime | None = None) -> WorkBatch:
        """Hand in a report and get work back, atomically. What is bad is in `rejected` or `refused`, all else is taken.

        When the connection is lost, or the call is cancelled, nothing is half-done, but what was done is unknown: hand
        in the same report again. Completions that had been accepted count as accepted; failures and releases come back
        as `lease lost`, accepted or not. Claimed work comes again, within the limits of this report or of the lost one.
        See `UnansweredCalls`.
        """
        return self.read(await self.call(report, as_of=as_of))

    async def call(
        self, report: WorkReport, *, meanwhile: Callable[[], None] | None = None, as_of: datetime | None = None
    ) -> Answer:
        """As `process_work_batch`, but what was claimed is yet to be read. `meanwhile` is called when the report is on
        its way: whoever reads the answer before this one there lets neither this process nor the database wait."""
        report, refused = report.storable(self.settings.max_payload_bytes)
        reports = self.held.resolve(report.outcomes, report.renewals, report.leases)
        reports.refused.extend(refused)
        if meanwhile is None:
            return await self._exchange(report, reports, as_of)
        exchange = asyncio.create_task(self._exchange(report, reports, as_of))
        try:
            # The task writes in its first step; an event loop may send what was written only in its next round.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            meanwhile()
            return await exchange
        finally:
            exchange.cancel()

    def read(self, answer: Answer) -> WorkBatch:
        """Take the work of an answer in hand: once, and in the order of the calls."""
        batch = answer.read(self._partitions)
        work: list[Sequence[Work]] = [
            batch.claimed_outbox_messages,
            batch.claimed_inbox_messages,
            batch.claimed_receptor_work,
            batch.claimed_perspective_work,
        ]
        for pieces in work:
            # Tokens rise, and one claim of a queue has one token.
            self._last_tokens.update({run.queue: run.lease_token for run in self.held.add(pieces, answer.sent_at)})
        # A claim of a perspective has another for its rebuild. Neither is given out again.
        for piece in batch.claimed_perspective_work:
            name = worked_as(piece.queue)
            self._last_tokens[name] = max(self._last_tokens[piece.queue], self._last_tokens.get(name, 0))
        return batch

    async def report(self, outcomes: Sequence[Outcome], *, on: Connection, as_of: datetime | None = None) -> HandedIn:
        """Hand in outcomes as the last statement of the caller's transaction, so that its effects and the end of the
        work commit together. Several tasks may do so at once, each for work of its own. After the commit, `settle`.

        When something is rejected, its effects may not commit: roll back, and begin again without it.
        """
        reports = self.held.resolve(outcomes, ())
        with translated():
            rows = await on.fetch(
                self._report_work,
                self.instance.instance_id,
                *columns_of(reports),
                self.settings.lease_seconds,
                self.settings.max_attempts,
                False,
                as_of,
            )
        lost = lost_runs(reports, rows)
        held = self.held
        return HandedIn(
            rejected=reports.rejected,
            settle=lambda: held.settle(reports, lost),
            forget=lambda: held.settle(StreamReports(), lost),
        )

    async def report_perspective_completion(
        self, *completions: PerspectiveCheckpointCompletion, as_of: datetime | None = None
    ) -> Sequence[Rejection]:
        """Move checkpoints, and nothing else, in a transaction of its own. What was refused changed nothing."""
        return await self._report_alone(completions, as_of)

    async def report_perspective_failure(
        self, *failures: PerspectiveCheckpointFailure, as_of: datetime | None = None
    ) -> Sequence[Rejection]:
        """Record why checkpoints do not move, and nothing else, in a transaction of its own."""
        return await self._report_alone(failures, as_of)

    def rejoin(self) -> Sequence[Rejection]:
        """Begin again under a new id, with nothing in hand: what an evicted instance does. Tells what is lost."""
        lost = [rejection for run in self.held.runs() for rejection in rejections_of(run.messages, "renew")]
        self.instance = self.instance.reborn()
        self.session_locked = False
        self._begin()
        return lost

    async def leave(self) -> None:
        """End this instance's membership. What it still holds is free for the others at once."""
        with translated():
            async with lent(self._connections, patience=self.settings.patience) as connection:
                await connection.execute(self._leave, self.instance.instance_id)
        self.held = HeldWork()

    async def _report_alone(self, outcomes: Sequence[Outcome], as_of: datetime | None) -> Sequence[Rejection]:
        with translated():
            async with lent(self._connections, patience=self.settings.patience) as connection, connection.transaction():
                handed_in = await self.report(outcomes, on=connection, as_of=as_of)
        handed_in.settle()
        return handed_in.rejected

    async def _exchange(self, report: WorkReport, reports: StreamReports, as_of: datetime | None) -> Answer:
        claim: dict[str, int] = {}
        if WorkBatchFlags.SKIP_CLAIM not in report.flags:
            claim = {str(queue): limit for queue, limit in report.limits.items()}
        with translated():
            async with lent(self._connections, patience=self.settings.patience) as connection:
                if self._partitions_version == -1 and self.settings.partition_count is not None:
                    await connection.execute(self._require_partition_count, self.settings.partition_count)
                # Asked before anything is handed in: if this connection is lost too, nothing has been taken in yet.
                await self._unanswered.settle(connection)
                stored = self._unanswered.stored()
                resumed = await self._unanswered.claimed(connection, claim, self._last_tokens, as_of)
                finished = await self._unanswered.completed(connection, reports)
                for row in resumed:
                    claim[worked_as(row[1])] = max(0, claim[worked_as(row[1])] - 1)
                handed_in = _without(reports, finished)
                # A time that the caller chose may lie before the horizon.
                scan = self._horizon.begin([] if as_of else [queue for queue, limit in claim.items() if limit > 0])
                arguments = self._arguments(report, handed_in, claim, scan.since)
                sent_at = time.monotonic()
                with self._unanswered.sending(connection, report, reports, claim):
                    rows = await connection.fetch(self._process_work, *arguments, as_of)
                self._horizon.end(scan, rows)
        self.held.settle(StreamReports(completed=finished), ())
        return self._settle(handed_in, not_claimed_again(resumed, rows) + news(rows, stored), sent_at)

    def _arguments(
        self, report: WorkReport, reports: StreamReports, claim: Mapping[str, int], ready_since: datetime | None
    ) -> tuple[Any, ...]:
        return (
            *self._identity(),
            as_json(report.new_outbox_messages),
            as_json(report.new_inbox_messages),
            *columns_of(reports),
            None if WorkBatchFlags.SKIP_CLAIM in report.flags else list(claim),
            list(claim.values()),
            *self._terms(),
            ready_since,
            WorkBatchFlags.DEBUG_MODE in report.flags,
            report.wait,
            self._partitions_version,
        )

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
        )

    def _settle(self, reports: StreamReports, rows: list[asyncpg.Record], sent_at: float) -> Answer:
        answer = Answer(sent_at=sent_at, rejected=reports.rejected, refused=reports.refused)
        rejected: list[asyncpg.Record] = []
        for row in rows:
            kind = row[0]
            if kind == "claimed":
                answer.claimed.append(row)
            elif kind == "partitions":
                self._partitions_version = row[4]
                self._horizon.reset()
                self._partitions = msgspec.json.decode(row[8], type=tuple[int, ...])
            elif kind == "rejected":
                rejected.append(row)
            elif kind not in ("stored", "nothing"):
                answer.refused.append(Refusal(row[5], kind, row[15]))
        self.held.settle(reports, lost_runs(reports, rejected), sent_at)
        return answer


def _without(reports: StreamReports, finished: Mapping[Run, int]) -> StreamReports:
    if not finished:
        return reports
    return replace(
        reports,
        completed={run: v for run, v in reports.completed.items() if run not in finished},
        in_hand={run: [m for m in held if m.version > finished.get(run, 0)] for run, held in reports.in_hand.items()},
    )
