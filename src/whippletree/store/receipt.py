"""What appending gives back: which events these are, and a way to wait until a perspective has them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from whippletree.errors import NotApplied
from whippletree.message.ids import EventId, StreamId
from whippletree.store.database import translated
from whippletree.store.feed import Feed
from whippletree.store.statements import call

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05


class Receipt:
    """Events that were appended to one stream, with their versions there."""

    __slots__ = ("_connections", "_schema", "event_ids", "stream_id", "versions")

    def __init__(
        self,
        stream_id: StreamId,
        event_ids: Sequence[EventId],
        versions: Sequence[int],
        *,
        connections: asyncpg.Pool[asyncpg.Record],
        schema: str,
    ) -> None:
        self.stream_id = stream_id
        self.event_ids = tuple(event_ids)
        self.versions = tuple(versions)
        self._connections = connections
        self._schema = schema

    def __repr__(self) -> str:
        return f"Receipt(stream_id={self.stream_id}, versions={self.versions})"

    async def applied(self, perspective: str | Callable[..., Any], *, timeout: float = 5) -> None:  # noqa: ASYNC109
        """Return when these events are in the perspective's rows, on whichever instance it runs.

        Commit first. Raises `NotApplied` when the time is up, which says what keeps it, and `UnknownName` at once when
        the perspective folds none of these events, or they are not committed.
        """
        name = perspective if isinstance(perspective, str) else perspective.__name__
        with translated():
            if await self._ask("follows_feed", name):
                await self._followed(name, timeout)
                return
            version = await self._ask("awaited_version", name, self.stream_id, list(self.versions))
            try:
                async with asyncio.timeout(timeout):
                    await self._until("has_applied", name, self.stream_id, version)
            except TimeoutError:
                if reason := await self._ask("why_not_applied", name, self.stream_id, version):
                    raise NotApplied(f"after {timeout:g} s: {reason}") from None

    async def _followed(self, name: str, timeout: float) -> None:  # noqa: ASYNC109 - as above
        """The same for a perspective that follows the feed, where the last of these events has a number."""
        follower = f"perspective/{name}"
        try:
            async with asyncio.timeout(timeout):
                # Our event is committed, so numbering what is committed gives it a number.
                await Feed(self._connections, schema=self._schema).last_number()
                number = await self._until("awaited_number", follower, self.stream_id, self.versions[-1])
                await self._until("has_followed", follower, number)
        except TimeoutError:
            rows = await self._connections.fetch(call(self._schema, "why_subscriber", 1), follower)
            raise NotApplied(f"after {timeout:g} s: {'; '.join(row[0] for row in rows)}") from None

    async def _until(self, function: str, *arguments: Any) -> Any:
        """The first answer that is neither NULL nor false; 0 is one."""
        pause = _FIRST_PAUSE
        while (answer := await self._ask(function, *arguments)) is None or answer is False:
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - jitter
            pause = min(2 * pause, _LONGEST_PAUSE)
        return answer

    async def _ask(self, function: str, *arguments: Any) -> Any:
        return await self._connections.fetchval(call(self._schema, function, len(arguments)), *arguments)
