"""One part of a rebuild, while it is held: followed to its end, a few parts of an instance at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import asyncpg

from whippletree.dispatch.rebuild_part import RebuildPart, SortedFeed, Stage
from whippletree.errors import LeaseLost
from whippletree.store.feed import Feed
from whippletree.work.feed_head import FeedHead
from whippletree.work.subscription import Subscription

PARTS_AT_ONCE = 2
"""While one waits for the database another decodes. More would take connections from what is new."""

PARTS_HELD = PARTS_AT_ONCE + 1
"""One is ready when another ends; the rest are for other instances."""


class PartSubscription(Subscription):
    """Follows like any subscription, but ends with the last number of its part. `room` is shared by all parts."""

    def __init__(
        self,
        part: RebuildPart,
        connections: asyncpg.Pool[asyncpg.Record],
        feed: Feed,
        instance_id: UUID,
        tell: Callable[[Subscription], None],
        room: asyncio.Semaphore,
    ) -> None:
        source = SortedFeed(connections, part) if part.stage is Stage.FOLD else feed
        super().__init__(part, connections, source, instance_id, tell, schema=part.schema)
        self._through = part.through
        self._room = room

    @property
    def held_up(self) -> bool:
        """Whether it is parked, paused or waiting for a retry, so that there is time for other parts."""
        return self._held_up() > 0

    def lag(self, last: int) -> int:
        return super().lag(self._through)

    async def _begin(self, head: FeedHead) -> None:
        try:
            await super()._begin(head)
        except LeaseLost:
            # Its stage is over, which this instance has not seen yet.
            self.stop()

    async def _step(self, head: FeedHead) -> None:
        if self._held_up():
            await super()._step(head)
        elif self._passed < self._through:
            async with self._room:
                await self._read_on(self._through)
        else:
            await self._save()
            self.stop()
            # Perhaps it was the last one: the next stage need not wait for the next look.
            head.tell()
