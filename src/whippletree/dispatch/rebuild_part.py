"""A part of the rebuild of a perspective that chooses its keys, so that all instances share the rebuild.

What was there when the rebuild began is sorted by key, each part a range of the feed's numbers, and then folded, each
part some of the keys, in the order of the feed. A part is a follower with an end: it is held, tried again, parked,
redriven and skipped as every other, and what it writes commits together with its checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import asyncpg

from whippletree.dispatch.multi_stream import MultiStreamPerspective
from whippletree.message.event import NumberedEvent, SortedEvent, StoredEvent
from whippletree.store.database import translated
from whippletree.store.feed import Chosen, Feed, FeedPage
from whippletree.store.statements import call
from whippletree.store.transaction import Transaction


class Stage(Enum):
    """What is done to the events of a part."""

    SORT = "sort"
    FOLD = "fold"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPart(MultiStreamPerspective):
    """One part as a follower of the feed, up to a number."""

    stage: Stage
    part: int
    through: int

    @property
    def name(self) -> str:
        return f"{self.perspective.queue}@{self.generation}/{self.stage.value}-{self.part}"

    async def apply(self, events: Sequence[NumberedEvent], transaction: Transaction | None, attempts: int) -> None:
        assert transaction is not None
        if self.stage is Stage.SORT:
            await self.sort(events, transaction)
        else:
            await MultiStreamPerspective.apply(self, events, transaction, attempts)


class SortedFeed(Feed):
    """The events of the keys of one part."""

    def __init__(self, connections: asyncpg.Pool[asyncpg.Record], part: RebuildPart) -> None:
        super().__init__(connections, schema=part.schema)
        self._part = part
        self._read_sorted = call(part.schema, "read_sorted", 5)

    async def page(self, after: int, last: int, chosen: Chosen, limit: int) -> FeedPage:
        """The next events after a number. All of them were chosen when they were sorted."""
        part = self._part
        with translated():
            rows = await self._connections.fetch(
                self._read_sorted, part.perspective.name, part.generation, part.part, after, limit
            )
        events = [SortedEvent(row[0], StoredEvent(*row[1:11]), row[11]) for row in rows]
        return FeedPage(events=events, through=events[-1].number if len(events) == limit else last)
