"""Runs perspectives that write by their own SQL, in the transaction that also moves their checkpoints.

A rebuild runs the same function with copies of its tables in front of the search path, so that its statements reach
those, as long as they name tables without a schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whippletree.dispatch.context import idempotency_key
from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.folding import Folded
from whippletree.dispatch.invoke import Providers, Surroundings
from whippletree.dispatch.perspective import Perspective
from whippletree.errors import StoreUnavailable
from whippletree.store.database import is_gone
from whippletree.store.statements import call
from whippletree.store.transaction import Connection, Transaction

_SEARCH_PATH = "SELECT set_config('search_path', $1, true)"


class _WroteLive(Exception):
    """A rebuild wrote to the tables that readers see."""


class HandWritten:
    """Runs the functions of one program."""

    def __init__(self, providers: Providers, *, schema: str) -> None:
        self._providers = providers
        self._enter_generation = call(schema, "enter_generation", 2)
        self._live_writes = call(schema, "live_writes", 1)

    async def run(self, perspective: Perspective[Any], streams: Sequence[Folded], connection: Connection) -> bool:
        """Run a perspective over the events of streams, all of one generation. False when its tables were swapped
        meanwhile, and then nothing was run. A stream at whose event it raises keeps what came before."""
        if not perspective.tables:
            for one in streams:
                if one.work.generation is None:
                    await self._run(perspective, one, connection)
                else:
                    one.park(one.after + 1, "this program does not say which tables it writes: tables=[…]")
            return True
        place = await connection.fetchval(self._enter_generation, perspective.name, streams[0].generation)
        if place is None:
            return False
        path = await connection.fetchval("SELECT current_setting('search_path')") if place else None
        if path is not None:
            await connection.execute(_SEARCH_PATH, f"{place}, {path}")
        for one in streams:
            await self._run(perspective, one, connection, beside=path is not None)
        if path is not None:
            await connection.execute(_SEARCH_PATH, path)
        return True

    async def _run(
        self, perspective: Perspective[Any], one: Folded, connection: Connection, *, beside: bool = False
    ) -> None:
        before = await connection.fetchval(self._live_writes, perspective.name) if beside else 0
        while one.events:
            savepoint = connection.transaction()
            await savepoint.start()
            reached = one.after
            try:
                for version, event, context in one.events:
                    reached = version
                    key = idempotency_key(perspective.name, context.message_id)
                    around = Surroundings(context=context, key=key, transaction=Transaction(connection))
                    await perspective.invocation(event, around, self._providers)
                if beside and await connection.fetchval(self._live_writes, perspective.name) != before:
                    raise _WroteLive
            except _WroteLive:
                await savepoint.rollback()
                one.park(one.after + 1, "the rebuild wrote to live tables; name tables without their schema")
                one.events = []
            except Exception as error:
                if is_gone(connection):
                    raise StoreUnavailable("the connection was lost in the middle of a transaction") from error
                await savepoint.rollback()
                one.fail(reached, f"event {reached}: {error_text(error)}", error, perspective.retry)
                one.events = [event for event in one.events if event[0] < reached]
                if beside:
                    # Attempts that were undone are counted too.
                    before = await connection.fetchval(self._live_writes, perspective.name)
            else:
                await savepoint.commit()
                return
