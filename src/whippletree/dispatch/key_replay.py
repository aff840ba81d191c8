"""Folding one key of a perspective that chooses its keys, from the first event of the feed on: its row as it was, or
its row made anew. It never runs a receptor."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.multi_stream import MultiStreamPerspective
from whippletree.dispatch.patience import LOCK_TIMEOUT, patiently
from whippletree.errors import CoordinationError, PerspectiveFailed, UnknownName
from whippletree.store.database import lent, translated
from whippletree.store.feed import Feed
from whippletree.store.statements import call
from whippletree.store.transaction import Connection

_On: TypeAlias = "asyncpg.Pool[asyncpg.Record] | Connection"

_PAGE = 1_000


@dataclass(slots=True)
class _Folded:
    """The row of a key with the events up to a number."""

    key: str
    through: int = 0
    row: Any = None
    number: int = 0
    """Of the last event of this key; 0 for none."""


class KeyReplay:
    """Replays the feed through one perspective for one key at a time."""

    def __init__(self, perspective: MultiStreamPerspective, connections: asyncpg.Pool[asyncpg.Record]) -> None:
        self._perspective = perspective
        self._name = perspective.perspective.name
        self._connections = connections
        schema = perspective.schema
        self._followed_through = call(schema, "followed_through", 1)
        self._take_over = call(schema, "take_over_follower", 1)
        self._live_generation = call(schema, "live_generation", 1)
        self._read_rows = call(schema, "read_rows", 3)
        self._write_rows = call(schema, "write_rows", 5)

    async def state_at(self, key: str, time: datetime | None) -> Any:
        """The row of a key as it was at a time, by the fold as it is now; None for no row. Reads the whole feed."""
        folded = _Folded(key)
        await self._fold(folded, await self._feed(self._connections).last_number(), self._connections, time)
        return folded.row

    async def rebuild(self, key: str) -> None:
        """Make the row of a key anew, with the events that the live rows have, in one transaction; readers see the old
        row until then. Whoever follows for the live rows is refused once, and goes on behind it.

        Raises `PerspectiveFailed`, and then nothing has changed.
        """
        folded = _Folded(key)

        async def attempt() -> None:
            through = await self._connections.fetchval(self._followed_through, self._name)
            if through is None:
                raise UnknownName(f"{self._name} has no rows yet: nobody has followed for it")
            # What takes long is done before anybody has to wait.
            await self._fold(folded, through, self._connections)
            async with lent(self._connections) as connection, connection.transaction():
                await self._replace(folded, connection)

        with translated():
            await patiently(attempt, f"a fold of {self._name} stays open, and it has to end first")

    async def _replace(self, folded: _Folded, connection: Connection) -> None:
        await connection.execute(LOCK_TIMEOUT)
        generation = await connection.fetchval(self._live_generation, self._name)
        there = await connection.fetch(self._read_rows, self._name, generation, [folded.key])
        await self._write(folded, generation, connection)
        await self._fold(folded, await connection.fetchval(self._take_over, self._name), connection)
        # Also when nothing has come since: there may have been no row to hold, and somebody may have committed one.
        await self._write(folded, generation, connection)
        if not there and not folded.number:
            raise UnknownName(f"no event that {self._name} has folded has the key {folded.key}")

    async def _write(self, folded: _Folded, generation: int, connection: Connection) -> None:
        perspective = self._perspective.perspective
        text = None if folded.row is None else perspective.encode_row(folded.row)
        if not await connection.fetchval(
            self._write_rows, self._name, generation, [folded.key], [text], [folded.number]
        ):
            raise CoordinationError(f"the rows of {self._name} were swapped meanwhile; rebuild the key again")

    async def _fold(self, folded: _Folded, last: int, on: _On, until: datetime | None = None) -> None:
        feed = self._feed(on)
        while folded.through < last:
            page = await feed.page(folded.through, last, self._perspective.chosen, _PAGE)
            for numbered in page.events:
                if until is not None and numbered.event.created_at > until:
                    continue
                try:
                    for _, message, key in self._perspective.keyed([numbered]):
                        if key == folded.key:
                            folded.row = self._perspective.fold(folded.row, numbered, message, 1)
                            folded.number = numbered.number
                except Exception as error:
                    raise PerspectiveFailed(
                        f"{self._name} cannot fold event {numbered.number} of the feed: {error_text(error)}"
                    ) from error
            folded.through = page.through

    def _feed(self, on: _On) -> Feed:
        return Feed(on, schema=self._perspective.schema)
