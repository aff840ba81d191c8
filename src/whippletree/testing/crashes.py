"""Crash injection: a receptor is run for real, and its process dies at every boundary; what is left is compared.

Every run has a database of its own. A crash ends the sessions of the instance in PostgreSQL and lets the instance do
nothing more; then another instance takes over, as it would in production.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import asyncpg

from whippletree.app import App
from whippletree.dispatch.policy import Effects
from whippletree.dispatch.receptor import Receptor
from whippletree.message.envelope import InboxMessage
from whippletree.message.ids import new_message_id
from whippletree.store.database import prepared_pool
from whippletree.store.inbox import store_inbox
from whippletree.testing.database import Database
from whippletree.testing.draining import draining
from whippletree.testing.receptor_case import registered
from whippletree.testing.world import World, look

_APPLICATION = "whippletree crash"


class Boundary(StrEnum):
    """Where a crash can come, and one thing more that a receptor has to live with."""

    BEFORE_CALL = "a crash before the call"
    AFTER_EFFECTS = "a crash after its effects, before the report"
    BEFORE_COMMIT = "a crash after the report, before the commit"
    AFTER_COMMIT = "a crash after the commit"
    DUPLICATE = "a second delivery"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """What is not safe about a receptor; its text says so, a line for each finding."""

    receptor: str
    findings: Sequence[tuple[Boundary, str]]

    @property
    def safe(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self.safe:
            return f"{self.receptor} survives a crash at every boundary, and a second delivery"
        lines = [f"{boundary}: {words}" for boundary, words in self.findings]
        return "\n  ".join([f"{self.receptor} is not safe:", *lines])


async def survives_crashes(
    app: App,
    function: Callable[..., Any] | str,
    message: object,
    *,
    database: Database,
    prepare: Callable[[asyncpg.Connection], Awaitable[Any]] | None = None,
    outside: Callable[[], Sequence[object]] = list,
) -> CrashReport:
    """Let a receptor handle a message, undisturbed and with a crash at every boundary, and say what differs.

    `prepare` makes its tables in each of the databases, which are as new as `database` was. `outside` tells what has
    happened outside of the database so far, such as the mails that a fake server has taken, in a list that grows.
    """
    receptor = registered(app, function)
    experiment = _Experiment(app, receptor, message, database, prepare, outside)
    undisturbed, again = await experiment.run(None), await experiment.run(None)
    findings = []
    for boundary in Boundary:
        left = await experiment.run(boundary)
        findings += [(boundary, words) for words in left.differences(undisturbed, steady=again == undisturbed)]
    return CrashReport(receptor=receptor.name, findings=findings)


@dataclass(frozen=True, slots=True)
class _Experiment:
    app: App
    receptor: Receptor
    message: object
    database: Database
    prepare: Callable[[asyncpg.Connection], Awaitable[Any]] | None
    outside: Callable[[], Sequence[object]]

    async def run(self, boundary: Boundary | None) -> World:
        """What is left of one run in a database of its own."""
        crash = _Crash(boundary)
        async with self.database.another() as database, database.serves(self.app), database.connect() as connection:
            if self.prepare is not None:
                await self.prepare(connection)
            before = len(self.outside())
            known = self.app.types.of(self.message)
            delivered = InboxMessage(
                message_id=new_message_id(),
                message_type=known.name,
                payload=known.encode(self.message),
                stream=known.stream_of(self.message),
                headers=None if known.shape == 1 else f'{{"wh_shape": {known.shape}}}',
            )
            schema = self.app.settings.schema
            await store_inbox([delivered], on=connection, schema=schema)
            alone = copy.copy(self.app)
            alone.receptors = self.app.receptors.only(crash.watched(self.receptor))
            alone.perspectives, alone.outside = {}, None
            if boundary not in (None, Boundary.DUPLICATE):
                await _crashed(alone, database, crash)
            await _worked(alone)
            if boundary is Boundary.DUPLICATE:
                await store_inbox([delivered], on=connection, schema=schema)
                await _worked(alone)
            return await look(connection, schema, delivered.message_id, list(self.outside())[before:])


@dataclass(slots=True)
class _Crash:
    """Strikes once, where it is told to."""

    boundary: Boundary | None
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    kill: Callable[[], Awaitable[Any]] | None = None
    ending: str | None = None
    """The statement that ends the message, once the receptor has been called."""

    def watched(self, receptor: Receptor) -> Receptor:
        """The same receptor, whose calls may be struck."""
        invocation = receptor.invocation

        async def call(message: Any, **arguments: Any) -> Any:
            await self.at(Boundary.BEFORE_CALL)
            if invocation.asynchronous:
                result = await invocation.function(message, **arguments)
            else:
                result = await asyncio.to_thread(invocation.function, message, **arguments)
            await self.at(Boundary.AFTER_EFFECTS)
            committed = invocation.takes_transaction or receptor.effects is Effects.EXTERNAL or result is not None
            self.ending = "COMMIT;" if committed else "process_work"
            return result

        return replace(receptor, invocation=replace(invocation, function=call, asynchronous=True))

    async def at(self, boundary: Boundary) -> None:
        if self.kill is None or self.boundary is not boundary or self.struck.is_set():
            return
        await self.kill()
        self.struck.set()
        # A dead process does nothing more; whoever waits for it is cancelled.
        await asyncio.Event().wait()

    def connection_class(self) -> type[asyncpg.Connection]:
        """Connections that may be struck around the statement that ends the message."""
        crash, connection = self, asyncpg.Connection

        class Struck(asyncpg.Connection):
            async def execute(self, query: str, *arguments: Any, **options: Any) -> str:
                return str(await crash.around(query, lambda: connection.execute(self, query, *arguments, **options)))

            async def fetch(self, query: str, *arguments: Any, **options: Any) -> Any:
                return await crash.around(query, lambda: connection.fetch(self, query, *arguments, **options))

        return Struck

    async def around(self, query: str, statement: Callable[[], Awaitable[Any]]) -> Any:
        ends = self.ending is not None and self.ending in query
        if ends:
            await self.at(Boundary.BEFORE_COMMIT)
        answer = await statement()
        if ends:
            await self.at(Boundary.AFTER_COMMIT)
        return answer


async def _crashed(app: App, database: Database, crash: _Crash) -> None:
    """One instance, up to its end by the crash. What it held is free then, as when others find it dead."""
    async with database.connect() as killer:
        terminate = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = $1"
        crash.kill = lambda: killer.execute(terminate + " AND datname = current_database()", _APPLICATION)
        pool = asyncpg.create_pool(
            database.dsn,
            min_size=1,
            max_size=8,
            connection_class=crash.connection_class(),
            server_settings={"application_name": _APPLICATION},
        )
        async with pool:
            async with draining(app, pool) as drain:
                work, struck = asyncio.create_task(drain.work()), asyncio.create_task(crash.struck.wait())
                await asyncio.wait([work, struck], return_when=asyncio.FIRST_COMPLETED)
                struck.cancel()
                work.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await work
            crash.kill = None
            pool.terminate()


async def _worked(app: App) -> None:
    """An instance that does what there is to do."""
    async with prepared_pool(app.settings, size=8) as pool, draining(app, pool) as drain:
        await drain.work()
