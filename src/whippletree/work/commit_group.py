"""Messages that share a commit without sharing their fate.

A group is one transaction. Each message is handled behind a savepoint, so that what it wrote can be undone when its
receptor raises. A savepoint costs as much as a small receptor: where none has raised for a while they are left out, and
a group in which one raises after all is undone and begun again with them. Then the messages that receptors returned are
stored, all at once and in the order of locks, and the ends of all are reported: the leases are checked in the very
transaction, and stay locked to its commit. So effects, completion and returned messages happen together or not at all,
wherever the process ends.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress

import asyncpg

from whippletree.claim.coordinator import HandedIn, WorkCoordinator
from whippletree.complete.retry import Next, decide
from whippletree.dispatch.error_text import sqlstate
from whippletree.dispatch.handling import CallFailed, Found, Handling, Unhandled, Work, headers_of
from whippletree.dispatch.receptor import Receptor
from whippletree.dispatch.routing import Origin, Router
from whippletree.errors import Error
from whippletree.message.envelope import Queue
from whippletree.message.outcome import Verdict
from whippletree.store import publishing
from whippletree.store.database import is_gone, lent, translated
from whippletree.store.publishing import NewMessages
from whippletree.store.statements import call
from whippletree.store.transaction import Connection, Transaction
from whippletree.telemetry import Counters, following, span
from whippletree.work import log
from whippletree.work.attempt import Attempt, Progress, completed, stop, write_down
from whippletree.work.lane import Handled, Lane, failure
from whippletree.work.outage import BackOff
from whippletree.work.pace import LONG_ENOUGH, Pace

GROUP_LIMIT = 50
"""Messages in one transaction: with more than 64 savepoints PostgreSQL's snapshots become slow for everybody."""

_NOT_TO_BLAME = frozenset({"40001", "40P01"})
"""Serialization failure, deadlock: the same work may succeed alone, or at the second attempt."""


_CAREFUL_FOR = 50
"""Groups that have savepoints after a receptor has raised."""


class CannotCommit(Exception):
    """The group cannot be committed as it is; its messages may be, one by one."""


class CommitGroups:
    """Commits the work of lanes. A lane is given to one call at a time."""

    def __init__(
        self,
        connections: asyncpg.Pool[asyncpg.Record],
        coordinator: WorkCoordinator,
        handling: Handling,
        router: Router,
        back_off: BackOff,
        *,
        schema: str,
        threads: Executor | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
        self._connections = connections
        self._coordinator = coordinator
        self._handling = handling
        self._router = router
        self._back_off = back_off
        self._schema = schema
        self._threads = threads
        self.pace = Pace()
        self._careful = 0
        self._set_aside = call(schema, "set_aside", 5)
        self._finished_messages = call(schema, "finished_messages", 4)

    async def commit(self, lanes: Sequence[Lane], *, limit: int = GROUP_LIMIT) -> None:
        """One transaction for what these lanes have in front of them, however long the database is away. Lanes whose
        leases prove lost are marked so, and the others begin again. Raises `CannotCommit`, with nothing done.
        """
        unknown = None
        for tries in itertools.count():
            try:
                with translated():
                    if not await self._find_out(unknown):
                        unknown = None
                        await self._attempt(lanes, limit)
                return
            except _ConnectionLost as lost:
                unknown = lost.attempt
            except Error as error:
                log.cannot_commit(error)
            await asyncio.sleep(self._back_off.pause(tries))

    async def _attempt(self, lanes: Sequence[Lane], limit: int) -> None:
        while live := [lane for lane in lanes if not lane.lost]:
            async with lent(self._connections) as connection:
                attempt = Attempt(savepoints=self._careful > 0 or limit == 1)
                transaction = connection.transaction(isolation="read_committed")
                try:
                    with span("receptors", map(_headers, live), streams=len(live)):
                        await transaction.start()
                        began = time.monotonic()
                        await self._handle(live, connection, attempt, limit)
                        self.pace.took(time.monotonic() - began, attempt.handled)
                        handed_in = await self._end(attempt, connection)
                except BaseException as error:
                    if not isinstance(error, Exception):
                        # Who is cancelled must end, even when the connection dies under the rollback.
                        with suppress(Exception):
                            await transaction.rollback()
                        raise
                    if not is_gone(connection):
                        await transaction.rollback()
                    else:
                        raise _ConnectionLost(None) from error
                    if isinstance(error, _NoSavepoint):
                        self._careful = _CAREFUL_FOR
                        continue
                    raise
                self._careful = max(0, self._careful - 1)
                if handed_in.rejected:
                    await transaction.rollback()
                    handed_in.forget()
                    self._mark_lost(live, handed_in)
                    continue
                await self._commit(transaction, connection, attempt)
                return

    async def _find_out(self, attempt: Attempt | None) -> bool:
        """Whether a transaction whose commit was not answered has happened after all; then it is written down."""
        sample = next((p for p in attempt.progress if p.finished is not None), None) if attempt else None
        if attempt is None or sample is None or sample.finished is None:
            return False
        last = sample.finished
        finished = await self._connections.fetchval(
            self._finished_messages, [last.queue], [last.stream_id], [last.version], [last.message_id]
        )
        if finished:
            write_down(attempt)
        return bool(finished)

    async def _commit(self, transaction: object, connection: Connection, attempt: Attempt) -> None:
        try:
            await transaction.commit()  # type: ignore[attr-defined]  # asyncpg's class is not public
        except Exception as error:
            if is_gone(connection):
                raise _ConnectionLost(attempt) from error
            raise CannotCommit from error
        self._counters.transactions_committed += 1
        self._counters.outbox_stored += len(attempt.new.outbox)
        stopped = [progress.lane.queue == Queue.INBOX for progress in attempt.progress if progress.stopped]
        self._counters.inbox_failed += sum(stopped)
        self._counters.receptor_failed += len(stopped) - sum(stopped)
        write_down(attempt)

    async def _handle(self, lanes: Sequence[Lane], connection: Connection, attempt: Attempt, limit: int) -> None:
        began = time.monotonic()
        for lane in lanes:
            progress = Progress(lane)
            attempt.progress.append(progress)
            attempt.outcomes.extend(lane.done)
            if lane.handled is not None:
                await self._conclude(lane.handled, connection, attempt, progress)
            for work in list(lane.work):
                if progress.stopped or attempt.handled >= limit or lane.lost:
                    break
                if attempt.handled and time.monotonic() - began > LONG_ENOUGH:
                    return
                try:
                    found = self._handling.find(work)
                except Unhandled as fault:
                    stop(progress, attempt, work, str(fault), Verdict.PARK)
                    break
                if not found.transactional:
                    break
                await self._handle_one(found, work, connection, attempt, progress, alone=limit == 1)
            if attempt.handled >= limit:
                return

    async def _handle_one(
        self,
        found: Found,
        work: Work,
        connection: Connection,
        attempt: Attempt,
        progress: Progress,
        *,
        alone: bool,
    ) -> None:
        if attempt.savepoints:
            again = "RELEASE SAVEPOINT wh_message; " if attempt.has_savepoint else ""
            await connection.execute(f"{again}SAVEPOINT wh_message")
            attempt.has_savepoint = True
        attempt.handled += 1
        try:
            returned = await self._handling.call(found, work, Transaction(connection), self._threads)
            new = self._routed(work, found.receptors[0], returned)
        except CallFailed as failed:
            if is_gone(connection):
                raise
            if not alone and sqlstate(failed.error) in _NOT_TO_BLAME:
                raise CannotCommit from failed
            if not attempt.savepoints:
                raise _NoSavepoint from failed
            await connection.execute("ROLLBACK TO SAVEPOINT wh_message")
            self._careful = _CAREFUL_FOR
            await self._failed(failed, work, connection, attempt, progress)
            return
        completed(progress, attempt, work, new)

    async def _conclude(self, handled: Handled, connection: Connection, attempt: Attempt, progress: Progress) -> None:
        """What was handled outside of the transaction is ended in it."""
        attempt.handled += 1
        work = handled.work
        if handled.given_up is not None:
            await self._give_up(work, handled.given_up, connection)
            completed(progress, attempt, work, NewMessages())
            return
        try:
            new = self._routed(work, handled.receptor, handled.returned)
        except CallFailed as failed:
            await self._failed(failed, work, connection, attempt, progress)
            return
        completed(progress, attempt, work, new)

    async def _failed(
        self, failed: CallFailed, work: Work, connection: Connection, attempt: Attempt, progress: Progress
    ) -> None:
        receptor = failed.receptor
        decision = decide(receptor.retry, receptor.on_poison, failed.error, work.attempts)
        log.receptor_failed(receptor.name, work, failed.error, decision.next.name.lower())
        if decision.next is Next.SKIP:
            text = str(failure(work, failed.error).error)
            await self._give_up(work, text, connection)
            completed(progress, attempt, work, NewMessages())
            return
        stop(progress, attempt, work, failed.error, decision.verdict, decision.retry_seconds)

    async def _give_up(self, work: Work, reason: str, connection: Connection) -> None:
        await connection.execute(self._set_aside, work.queue, work.stream_id, work.version, work.attempts, reason)

    def _routed(self, work: Work, receptor: Receptor, returned: Sequence[object]) -> NewMessages:
        new = NewMessages()
        if returned:
            origin = Origin(correlation_id=work.correlation_id or work.message_id, causation_id=work.message_id)
            try:
                with following(headers_of(work)):
                    for message in returned:
                        self._router.add(message, new, origin)
            except Error as error:
                raise CallFailed(receptor, error) from error
        return new

    def _mark_lost(self, lanes: Sequence[Lane], handed_in: HandedIn) -> None:
        refused = {rejection.message_id for rejection in handed_in.rejected}
        for lane in lanes:
            if not lane.lost and lane.holds(refused):
                lane.lost = True
                self._counters.leases_lost += 1
                log.lease_lost(lane.queue, lane.stream_id)

    async def _end(self, attempt: Attempt, connection: Connection) -> HandedIn:
        try:
            versions = await publishing.publish(attempt.new, on=connection, schema=self._schema)
            if attempt.new.events and (inline := self._router.inline()):
                await inline.after_publishing(attempt.new, versions, connection)
            attempt.handed_in = await self._coordinator.report(attempt.outcomes, on=connection)
        except Exception as error:
            raise CannotCommit from error
        return attempt.handed_in


class _NoSavepoint(Exception):
    """A message is to be undone alone, and cannot be."""


class _ConnectionLost(Exception):
    """The connection is gone. `attempt` is the transaction that was being committed, if it had come so far."""

    def __init__(self, attempt: Attempt | None) -> None:
        super().__init__("the connection was lost")
        self.attempt = attempt


def _headers(lane: Lane) -> str | None:
    """Those of what a lane has in front of it."""
    return headers_of(lane.handled.work if lane.handled else lane.work[0])
