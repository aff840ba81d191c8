"""Folding one stream from its first event on: its row as it was, or its row made anew. It never runs a receptor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.folding import Folded
from whippletree.dispatch.patience import LOCK_TIMEOUT, patiently
from whippletree.dispatch.perspective_folder import PerspectiveFolder
from whippletree.errors import (
    CoordinationError,
    InvalidSetting,
    PerspectiveFailed,
    UnknownName,
    UsageError,
)
from whippletree.message.envelope import PerspectiveWork
from whippletree.message.ids import StreamId
from whippletree.store.database import lent, translated
from whippletree.store.event_store import EventStore, Span
from whippletree.store.statements import call
from whippletree.store.transaction import Connection, Transaction

_BATCH = 1000
"""So many events of a stream are in memory at once."""

Clear: TypeAlias = "Callable[[UUID | str, Transaction], Awaitable[None]]"


class Replays:
    """Replays streams through the perspectives of one program."""

    def __init__(self, folder: PerspectiveFolder, connections: asyncpg.Pool[asyncpg.Record]) -> None:
        self._folder = folder
        self._connections = connections
        self._store = EventStore(connections, schema=folder.schema)
        self._stream_id_of = call(folder.schema, "stream_id_of", 1)
        self._keep_from_appends = call(folder.schema, "keep_from_appends", 1)
        self._take_over = call(folder.schema, "take_over_streams", 2)
        self._live_generation = call(folder.schema, "live_generation", 1)
        self._stream_names = call(folder.schema, "stream_names", 1)
        self._save = call(folder.schema, "save_checkpoints", 4)

    async def state_at(
        self, perspective: str, stream: UUID | str, *, version: int | None = None, time: datetime | None = None
    ) -> Any:
        """The row of a stream as it was after a version, or at a time, by the fold as it is now; None for no row.

        Nothing is written. Raises `PerspectiveFailed` at an event that cannot be folded.
        """
        require_time_zone(time)
        self._require(perspective)
        span = Span(up_to=version, until=time, backwards=True, limit=1)
        last = await self._store.read(stream, span)
        if not last:
            return None
        with translated():
            async with lent(self._connections) as connection:
                folded = await self._replay(perspective, last[0].stream_id, last[0].version, connection)
        decode = self._folder.perspectives[perspective].decode_row
        assert decode is not None
        return None if folded.row is None else decode(folded.row)

    async def rebuild_stream(self, perspective: str, stream: UUID | str) -> None:
        """Make the row of one stream anew from its events, in one transaction; readers see the old row until then. What
        a perspective wrote by its own SQL is cleared and written again.

        Whoever worked the stream is refused when it reports, and appends to this stream wait. A parked stream goes on
        when the fold does. Raises `PerspectiveFailed`, and then nothing has changed.
        """
        self._require(perspective)
        clear = self._clear_of(perspective)
        with translated():
            async with lent(self._connections) as connection, connection.transaction():
                stream_id = (
                    stream if isinstance(stream, UUID) else await connection.fetchval(self._stream_id_of, stream)
                )
                version = await connection.fetchval(self._keep_from_appends, stream_id)
                if not version:
                    raise UnknownName(f"stream {stream} has no events")
                if clear is None:
                    await self._replace(perspective, stream_id, version, connection)
                else:
                    await self._rewrite(_work(perspective, stream_id, version), clear, connection)
                as_of = await connection.fetchval("SELECT clock_timestamp()")
                await connection.execute(self._save, [f"perspective/{perspective}"], [stream_id], [version], as_of)

    async def _replace(self, perspective: str, stream_id: UUID, version: int, connection: Connection) -> None:
        generation = await connection.fetchval(self._live_generation, perspective)
        folded = await self._replay(perspective, stream_id, version, connection)
        folded.generation, folded.changed = generation, True
        # The row before the work, unless it is inline, as those do who work it: else each could wait for the other.
        await self._folder.keep_from_inline([folded], connection)
        await self._write(folded, connection)
        await connection.execute(self._take_over, perspective, [stream_id])
        if folded.row is None:
            # There was no row to hold, and somebody may have committed one until the work was taken from him.
            await self._write(folded, connection)

    async def _rewrite(self, work: PerspectiveWork, clear: Clear, connection: Connection) -> None:
        """Clear the stream and write it again. What it has in the tables nobody knows but the function, so the work is
        taken first; whoever is in the middle of it is let through, and then the stream has no more, for appends wait.
        """
        name = work.perspective_name
        (known,) = await connection.fetchval(self._stream_names, [work.stream_id])

        async def attempt() -> Folded:
            async with connection.transaction():
                await connection.execute(LOCK_TIMEOUT)
                await connection.execute(self._take_over, name, [work.stream_id])
                await self._clear(clear, work, known, connection)
                return await self._folder.rewrite(work, _BATCH, connection)

        folded = await patiently(attempt, f"what {name} wrote for stream {known} stays locked by another transaction")
        if folded.failed is not None:
            raise PerspectiveFailed(f"{name} cannot write stream {known}: {folded.failed}")

    async def _clear(self, clear: Clear, work: PerspectiveWork, known: str, connection: Connection) -> None:
        try:
            await clear(work.stream_id if known == str(work.stream_id) else known, Transaction(connection))
        except asyncpg.LockNotAvailableError:
            raise
        except Exception as error:
            raise PerspectiveFailed(
                f"{work.perspective_name} cannot clear stream {known}: {error_text(error)}"
            ) from error

    def _clear_of(self, perspective: str) -> Clear | None:
        found = self._folder.perspectives[perspective]
        if found.row_type is None and found.clear is None:
            raise UsageError(
                f"{perspective} writes its own tables, and only it knows what belongs to a stream there; say how that "
                "is removed, @app.perspective(clear=…), or rebuild all of it"
            )
        return found.clear

    async def _write(self, folded: Folded, connection: Connection) -> None:
        if await self._folder.write([folded], connection):
            name = folded.work.perspective_name
            raise CoordinationError(f"the rows of {name} were swapped meanwhile; rebuild the stream again")

    async def _replay(self, perspective: str, stream_id: UUID, version: int, connection: Connection) -> Folded:
        folded = await self._folder.replay(_work(perspective, stream_id, version), _BATCH, connection)
        if folded.failed is not None:
            raise PerspectiveFailed(f"{perspective} cannot fold stream {stream_id}: {folded.failed}") from folded.cause
        return folded

    def _require(self, perspective: str) -> None:
        if perspective not in self._folder.perspectives:
            known = ", ".join(sorted(self._folder.perspectives)) or "none"
            raise UnknownName(f"this program has no perspective of the name {perspective}; it has {known}")


def _work(perspective: str, stream_id: UUID, version: int) -> PerspectiveWork:
    return PerspectiveWork(f"perspective/{perspective}", StreamId(stream_id), 0, None, version, 1, 0)


def require_time_zone(time: datetime | None) -> None:
    """Refuse a time that means another one on another machine."""
    if time is not None and time.utcoffset() is None:
        raise InvalidSetting("time has no time zone; use datetime.now(timezone.utc) and the like")
