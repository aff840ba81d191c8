"""Rebuilds of perspectives that choose their keys: each is followed a second time, from the beginning of the feed.

Every instance that has such a perspective stands by for its rebuild too, and one of them follows, as for the live
rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import asyncpg

from whippletree.dispatch.multi_stream import MultiStreamPerspective
from whippletree.dispatch.subscriber import Follower
from whippletree.store.database import translated
from whippletree.store.statements import call
from whippletree.work import log


class FeedRebuilds:
    """Follows rebuilds while there are any. `follow` and `unfollow` are told of each as it begins and ends."""

    def __init__(
        self,
        followers: Iterable[Follower],
        connections: asyncpg.Pool[asyncpg.Record],
        follow: Callable[[Follower], Awaitable[None]],
        unfollow: Callable[[str], Awaitable[None]],
        *,
        schema: str = "whippletree",
    ) -> None:
        self._live = {f.perspective.name: f for f in followers if isinstance(f, MultiStreamPerspective)}
        self._connections = connections
        self._follow = follow
        self._unfollow = unfollow
        self._followed: set[str] = set()
        self._feed_rebuilds = call(schema, "feed_rebuilds", 1)

    async def keep_looking(self, every: float) -> None:
        """Look for ever; return at once when this program has no such perspective."""
        while self._live:
            try:
                await self._look()
            except Exception as error:
                # Whatever it is: without this task rebuilds would wait for ever, silently.
                log.rebuilds_unknown(error)
            await asyncio.sleep(every)

    async def _look(self) -> None:
        with translated():
            rows = await self._connections.fetch(self._feed_rebuilds, sorted(self._live))
        rebuilds = [replace(self._live[name], generation=generation) for name, generation in rows]
        for name in self._followed - {rebuild.name for rebuild in rebuilds}:
            await self._unfollow(name)
            self._followed.discard(name)
        for rebuild in rebuilds:
            if rebuild.name not in self._followed:
                self._followed.add(rebuild.name)
                await self._follow(rebuild)
