"""All events in one order: the feed. An event is numbered after its commit, by whoever reads first.

A number drawn before commit can become visible after a later one, and a reader that has gone on never sees it. Here
the late event gets a later number instead: whoever goes on from a number has missed nothing. The events of one stream
keep their order. See `docs/decisions/feed-numbering.md`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg

from whippletree.message.event import NumberedEvent, StoredEvent
from whippletree.message.upcast import Upcasters
from whippletree.store.database import translated
from whippletree.store.statements import call
from whippletree.store.transaction import Connection

_PAUSE = 0.005
"""Seconds, about, between two attempts to number while another session does."""

_PATIENCE = 1.0
"""Seconds after which a reader takes what has a number already, though another session is still numbering."""

_STEP = 10_000
"""Numbers that one call looks through at most, so that a rare type does not make a call long."""

_PAGE = 1_000
"""Events of one call at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which events of the feed: of the types named or matching a pattern. Without either, all of them."""

    types: Sequence[str] | None = None
    patterns: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """Some events in order, and the number up to which no other was chosen."""

    events: Sequence[NumberedEvent]
    through: int


class Feed:
    """Reads the feed. Every call numbers what was committed before it, in a transaction of its own."""

    def __init__(
        self,
        connections: asyncpg.Pool[asyncpg.Record] | Connection,
        *,
        schema: str = "whippletree",
        upcasters: Upcasters | None = None,
    ) -> None:
        self._connections = connections
        self._upcasters = upcasters or Upcasters()
        self._number_events = call(schema, "number_events", 0)
        self._last_number = call(schema, "last_number", 0)
        self._read_feed = call(schema, "read_feed", 5)

    async def last_number(self) -> int:
        """The last number, after everything that was committed before this call has one."""
        deadline = time.monotonic() + _PATIENCE
        with translated():
            while time.monotonic() < deadline:
                last: int | None = await self._connections.fetchval(self._number_events)
                if last is not None:
                    return last
                await asyncio.sleep(random.uniform(0, 2 * _PAUSE))  # noqa: S311 - jitter
            return int(await self._connections.fetchval(self._last_number))

    async def page(self, after: int, last: int, chosen: Chosen, limit: int) -> FeedPage:
        """The next events after a number, of those up to `last`. Looks at a part only when few are chosen.

        It does not go beyond what is there: the server that said `last` may have been replaced by one that has fewer,
        and gives the same numbers to other events.
        """
        through = min(last, after + _STEP)
        with translated():
            rows = await self._connections.fetch(
                self._read_feed,
                after,
                through,
                None if chosen.types is None else list(chosen.types),
                None if chosen.patterns is None else list(chosen.patterns),
                limit,
            )
        events = [NumberedEvent(row[0], self._upcasters.lift(StoredEvent(*row[1:]))) for row in rows]
        reached = events[-1].number if events else after
        if len(events) < limit and reached < through:
            with translated():
                there = await self._connections.fetchval(self._last_number)
            reached = max(reached, min(through, there))
        return FeedPage(events=events, through=reached)

    async def read_all(
        self,
        *,
        after: int = 0,
        types: Sequence[str] | None = None,
        patterns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[NumberedEvent]:
        """The events after a number, in their present shape: all of them, or the first so many."""
        chosen = Chosen(types=types, patterns=patterns)
        last = await self.last_number()
        found: list[NumberedEvent] = []
        while after < last and (limit is None or len(found) < limit):
            page = await self.page(after, last, chosen, _PAGE if limit is None else min(_PAGE, limit - len(found)))
            found += page.events
            after = page.through
        return found

    async def follow(
        self,
        *,
        after: int = 0,
        types: Sequence[str] | None = None,
        patterns: Sequence[str] | None = None,
        wait: Callable[[], Awaitable[object]],
    ) -> AsyncIterator[NumberedEvent]:
        """The events after a number, and then whatever is appended, for as long as it is iterated.

        `wait` returns when it is time to look again: `WakeListener.wait` with a timeout, or a pause.
        """
        chosen = Chosen(types=types, patterns=patterns)
        while True:
            last = await self.last_number()
            while after < last:
                page = await self.page(after, last, chosen, _PAGE)
                for event in page.events:
                    yield event
                after = page.through
            await wait()
