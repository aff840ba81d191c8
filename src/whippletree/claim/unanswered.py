"""Calls whose answer never came: what happened is found out before the next call, so that nothing is guessed.

A call is one transaction, so it happened as a whole or not at all. Afterwards three things may be unknown: which
messages it claimed, which completions it took, which new messages it stored. The first is asked of the database and
exact. The second is too, while the lease lasts. For the third the database refuses an id that is still waiting; one
that was published and finished in the meantime is stored, and published, once more, under the same id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import asyncpg
import asyncpg.pool

from whippletree.claim.batch import WorkReport
from whippletree.claim.held import Run, StreamReports
from whippletree.message.ids import InstanceId, MessageId
from whippletree.store.database import is_gone
from whippletree.store.statements import call

ALREADY_WAITING = "message_id is already waiting in the outbox"
"""The reason with which the database refuses a message whose first copy is still there."""

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"


@dataclass(frozen=True, slots=True)
class _Sent:
    """A call on its way."""

    report: WorkReport
    reports: StreamReports
    queues: Collection[str]


class UnansweredCalls:
    """One instance's calls without an answer, oldest first. Usually there is none, and nothing is asked."""

    def __init__(self, instance_id: InstanceId, schema: str) -> None:
        self._instance_id = instance_id
        self._calls: list[_Sent] = []
        self._queues: set[str] = set()
        self._process_ids: list[int] = []
        self._end_lost_calls = call(schema, "end_lost_calls", 2)
        self._resume_claims = call(schema, "resume_claims", 4)
        self._finished_messages = call(schema, "finished_messages", 4)

    @contextmanager
    def sending(
        self, connection: Connection, report: WorkReport, reports: StreamReports, queues: Collection[str]
    ) -> Iterator[None]:
        """Around a call. Only an answer ends the doubt; an error that the server itself reported is one: all undone."""
        self._calls.append(_Sent(report, reports, queues))
        process_id = connection.get_server_pid()
        try:
            yield
        except BaseException as error:
            if isinstance(error, asyncpg.PostgresError) and getattr(error, "severity_en", None) == "ERROR":
                self._calls.pop()
            elif is_gone(connection):
                self._process_ids.append(process_id)
            raise
        self._calls.clear()
        self._queues.difference_update(queues)

    async def settle(self, connection: Connection) -> None:
        """Make sure that no call of this instance is under way any more."""
        if self._calls:
            await connection.execute(self._end_lost_calls, self._instance_id, self._process_ids)
            self._queues.update(*(sent.queues for sent in self._calls))
            self._process_ids.clear()

    async def claimed(
        self,
        connection: Connection,
        queues: Collection[str],
        last_tokens: Mapping[str, int],
        as_of: datetime | None,
    ) -> list[asyncpg.Record]:
        """What the lost calls claimed from these queues: everything held under a later token than the last one seen."""
        rows: list[asyncpg.Record] = []
        for queue in sorted(self._queues.intersection(queues)):
            rows += await connection.fetch(
                self._resume_claims, self._instance_id, queue, last_tokens.get(queue, 0), as_of
            )
        return rows

    async def completed(self, connection: Connection, reports: StreamReports) -> dict[Run, int]:
        """The completions of this report that a lost call has already brought to an end.

        Told by the messages being gone and their stream having moved on. While the lease lasts only its holder can
        have done that. Once it has run out another instance may have taken the stream and finished the same messages:
        then this cannot tell who did, only that they are done, which is what the reporter wanted.
        """
        again = {
            run: through
            for run, through in reports.completed.items()
            if any(run in sent.reports.completed for sent in self._calls)
        }
        if not again:
            return {}
        last = [
            next((m.message_id for m in run.messages if m.version == through), run.messages[-1].message_id)
            for run, through in again.items()
        ]
        places = await connection.fetchval(
            self._finished_messages,
            [run.queue for run in again],
            [run.stream_id for run in again],
            list(again.values()),
            last,
        )
        runs = list(again)
        return {runs[place - 1]: again[runs[place - 1]] for place in places}

    def stored(self) -> frozenset[MessageId]:
        """The ids of outbox messages that a lost call may have stored."""
        return frozenset(m.message_id for sent in self._calls for m in sent.report.new_outbox_messages)


def not_claimed_again(resumed: list[asyncpg.Record], rows: list[asyncpg.Record]) -> list[asyncpg.Record]:
    """What a lost claim brought, without the streams whose lease had run out and that this call claimed anew."""
    anew = {(row[1], row[3]) for row in rows if row[0] == "claimed"} if resumed else set()
    return [row for row in resumed if (row[1], row[3]) not in anew]


def news(rows: list[asyncpg.Record], stored: Collection[MessageId]) -> list[asyncpg.Record]:
    """The answer without the refusals of what a lost call had already stored."""
    if not stored:
        return rows
    return [row for row in rows if not (row[0] == "refused" and row[5] in stored and row[15] == ALREADY_WAITING)]
