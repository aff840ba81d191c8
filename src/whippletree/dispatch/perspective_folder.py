"""Reads what perspectives have before them, folds it, and writes what came out, on the connection that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import asyncpg

from whippletree.dispatch.folding import EventRow, Folded, fold
from whippletree.dispatch.hand_written import HandWritten
from whippletree.dispatch.invoke import Providers
from whippletree.dispatch.perspective import EventDecoder, Perspective
from whippletree.errors import UsageError
from whippletree.message.envelope import PerspectiveWork
from whippletree.message.type_names import MessageTypes
from whippletree.store.statements import call
from whippletree.store.transaction import Connection


class PerspectiveFolder:
    """The perspectives of one program, stream by stream."""

    def __init__(
        self,
        perspectives: Iterable[Perspective[Any]],
        types: MessageTypes,
        *,
        providers: Providers | None = None,
        schema: str = "whippletree",
    ) -> None:
        self.perspectives = {perspective.name: perspective for perspective in perspectives}
        for perspective in self.perspectives.values():
            if perspective.key is not None:
                raise UsageError(
                    f"{perspective.name} chooses its keys, so it needs the events of all streams in the order of their "
                    "commits; it cannot be run stream by stream"
                )
        self.schema = schema
        self._decoders = {name: EventDecoder(found, types) for name, found in self.perspectives.items()}
        self._hand_written = HandWritten(providers or Providers(), schema=schema)
        self._live_generation = call(schema, "live_generation", 1)
        self._read_events = call(schema, "read_perspective_events", 5)
        self._read_rows = call(schema, "read_rows", 3)
        self._lock_for_folding = call(schema, "lock_for_folding", 2)
        self._write_rows = call(schema, "write_rows", 5)

    async def fold(
        self, work: Sequence[PerspectiveWork], batch_size: int | None, connection: Connection
    ) -> list[Folded]:
        """Fold streams of one perspective, up to so many events of each. Nothing is written yet."""
        perspective = self.perspectives[work[0].registered_name]
        generation = work[0].generation or await connection.fetchval(self._live_generation, perspective.name)
        folded = [
            Folded(one, one.checkpoint, min(one.version, one.checkpoint + (batch_size or one.version)), generation)
            for one in work
        ]
        rows: dict[int, str] = {}
        if perspective.row_type is not None:
            keys = [str(one.stream_id) for one in work]
            found = await connection.fetch(self._read_rows, perspective.name, generation, keys)
            rows = {record["place"]: record["row"] for record in found}
        await self._fold(perspective, folded, rows, connection)
        return folded

    async def replay(self, work: PerspectiveWork, batch_size: int, connection: Connection) -> Folded:
        """Fold a stream from its first event on into a row that nobody sees, so many events at a time. It stops at an
        event that cannot be folded."""
        perspective = self.perspectives[work.registered_name]
        if perspective.row_type is None:
            raise UsageError(f"{perspective.name} writes its own tables; only what it wrote there is known of it")
        folded = Folded(work, 0, 0)
        while folded.through < work.version and folded.failed is None:
            rows = {} if folded.row is None else {1: folded.row}
            folded.after, folded.through = folded.through, min(work.version, folded.through + batch_size)
            await self._fold(perspective, [folded], rows, connection)
            # A text that was checked is of a class of its own, which cannot be decoded again.
            folded.row = None if folded.row is None else str(folded.row)
        return folded

    async def rewrite(self, work: PerspectiveWork, batch_size: int, connection: Connection) -> Folded:
        """Run a perspective that writes its own tables over a stream, from its first event on, so many events at a
        time. It stops at an event at which the perspective raises, and at once when the tables were swapped. That a
        lock was not free in time is no failure of the perspective's, and is raised."""
        perspective = self.perspectives[work.registered_name]
        generation = await connection.fetchval(self._live_generation, perspective.name)
        folded = Folded(work, 0, 0, generation)
        while folded.through < work.version and folded.failed is None:
            folded.after, folded.through = folded.through, min(work.version, folded.through + batch_size)
            folded.events = []
            await self._fold(perspective, [folded], {}, connection)
            if not await self._hand_written.run(perspective, [folded], connection):
                folded.park(folded.after + 1, "its tables were swapped meanwhile; rebuild the stream again")
        if isinstance(folded.cause, asyncpg.LockNotAvailableError):
            raise folded.cause
        return folded

    async def _fold(
        self, perspective: Perspective[Any], folded: Sequence[Folded], rows: Mapping[int, str], connection: Connection
    ) -> None:
        events = await connection.fetch(
            self._read_events,
            perspective.queue,
            [one.work.stream_id for one in folded],
            [one.after for one in folded],
            [one.through for one in folded],
            perspective.takes_context,
        )
        by_place: dict[int, list[EventRow]] = {}
        for event in events:
            by_place.setdefault(event[0], []).append(EventRow(*event))
        for place, stored in by_place.items():
            folded[place - 1].headers = stored[0].metadata
            fold(perspective, self._decoders[perspective.name], folded[place - 1], rows.get(place), stored)

    async def keep_from_inline(self, folded: Sequence[Folded], connection: Connection) -> None:
        """Before `write`, for whoever does not append: let appends that fold the same streams inline wait."""
        for name in sorted({one.work.registered_name for one in folded if one.work.generation is None}):
            if self.perspectives[name].inline:
                streams = [one.work.stream_id for one in folded if one.work.perspective_name == name]
                await connection.execute(self._lock_for_folding, name, streams)

    async def write(self, folded: Sequence[Folded], connection: Connection) -> list[Folded]:
        """Write the rows, or run the functions that write. Those whose generation is gone come back, unwritten."""
        swapped: list[Folded] = []
        for _, group in groupby(sorted(folded, key=_name), key=_name):
            streams = list(group)
            perspective = self.perspectives[streams[0].work.registered_name]
            if perspective.row_type is None:
                if not await self._hand_written.run(perspective, streams, connection):
                    swapped += streams
            elif changed := [one for one in streams if one.changed]:
                written = await connection.fetchval(
                    self._write_rows,
                    perspective.name,
                    changed[0].generation,
                    [str(one.work.stream_id) for one in changed],
                    [one.row for one in changed],
                    [one.through for one in changed],
                )
                if not written:
                    swapped += streams
        return swapped


def _name(one: Folded) -> str:
    return one.work.perspective_name
